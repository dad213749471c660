"""The configuration of an actor-critic network: torso, recurrent core, policy and value heads.

What it builds is in `module` and `heads`: reading a configuration imports no jax.
"""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from seedrl.networks.field_checks import check_fields
from seedrl.networks.network import Network

if TYPE_CHECKING:  # imports numpy
    from seedrl.specs import EnvSpec


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """A network of a policy over discrete actions and of its value.

    A recurrent core sees the torso's output, the previous executed action (one-hot) and the
    previous reward, both zeros on FIRST. Without a core, the heads see the torso's output alone.

    What a default leaves open follows from the observation, in `build`.

    Attributes:
      torso: encoder of images; "mlp" flattens them; "auto" is "nature" where there is an image that
        is large enough for it (36 x 36), else "mlp". Whatever is no such image is flattened.
      torso_sizes: dense layers after it, which policy and value share.
      core: recurrent core.
      core_size: its units.
      head_sizes: hidden layers of the policy and, apart from them, of the value.
      frame_stack: frames of an image that the torso sees at once, newest first; 1 stacks nothing;
        None is 4 where there is an image, else 1.
      dtype: of matrix products and convolutions. Parameters, carry and output stay float32.
    """

    torso: Literal["auto", "mlp", "nature", "impala"] = "auto"
    torso_sizes: tuple[int, ...] = (256,)
    core: Literal["lstm", "gru", "none"] = "lstm"
    core_size: int = 256
    head_sizes: tuple[int, ...] = ()
    frame_stack: int | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        check_fields(self)

    def build(self, spec: "EnvSpec") -> Network:
        """The network for environments of this spec.

        `unroll` gives a `PolicyAndValue`. Raises ConfigError where an image is needed (a
        convolutional torso, frame stacking) and the observation has none.
        """
        from seedrl.networks import heads, module
        from seedrl.specs import DiscreteSpec

        assert isinstance(spec.action, DiscreteSpec), "the agent has refused other actions"
        num_actions = spec.action.num_actions
        return module.from_config(
            self,
            spec,
            num_actions,
            head=functools.partial(
                heads.PolicyAndValueHead, num_actions, self.head_sizes, self.dtype
            ),
        )
