"""The configuration of a Q-network: torso, recurrent core and head.

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
class QNetworkConfig:
    """A Q-network. The defaults are those of R2D2 (Kapturowski et al. 2019, table 2, appendix).

    A recurrent core sees the torso's output, the previous executed action (one-hot) and the
    previous reward, both zeros on FIRST. The reward is raw, as in R2D2: scale rewards of thousands
    in the environment. Without a core, the head sees the torso's output alone.

    The torso divides uint8 by 255, whatever its shape, and takes all else at its value: `Discrete`
    is one number, not one-hot, and floats are not normalized; do both in the environment. The
    arrays of a dict (by sorted keys) or tuple are concatenated in that order.

    What a default leaves open follows from the observation, in `build`.

    Attributes:
      torso: encoder of images, which are uint8 or float16 arrays of `[H, W]` or `[H, W, C]`; "mlp"
        flattens them; "auto" is "nature" where an image has at least 36 x 36, else "mlp"; "shallow"
        is the small one of IMPALA, "minatar" one convolution, for small images. What the encoder
        does not take is flattened.
      torso_sizes: dense layers after it, on all arrays of the observation together.
      core: recurrent core.
      core_size: its units.
      head_sizes: hidden layers of the head.
      dueling: whether value and advantages have streams of their own.
      frame_stack: frames that the torso sees at once of every image, newest first; 1 stacks
        nothing; None is 4 where the encoder takes an image, else 1: images that are flattened, such
        as `uint8[4, 4, 3]`, are not stacked by default.
      dtype: of matrix products and convolutions. Parameters, carry and Q-values stay float32.
    """

    torso: Literal["auto", "mlp", "nature", "shallow", "impala", "minatar"] = "auto"
    torso_sizes: tuple[int, ...] = (512,)
    core: Literal["lstm", "gru", "none"] = "lstm"
    core_size: int = 512
    head_sizes: tuple[int, ...] = (512,)
    dueling: bool = True
    frame_stack: int | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        check_fields(self)

    def build(self, spec: "EnvSpec") -> Network:
        """The network for environments of this spec.

        `unroll` gives Q-values `[T, B, A] float32`. Raises ConfigError where an image is needed (a
        convolutional torso, frame stacking) and the observation has none.
        """
        from seedrl.networks import heads, module
        from seedrl.specs import DiscreteSpec

        assert isinstance(spec.action, DiscreteSpec), "the agent has refused other actions"
        num_actions = spec.action.num_actions
        head = heads.DuelingHead if self.dueling else heads.QHead
        return module.from_config(
            self,
            spec,
            num_actions,
            head=functools.partial(head, num_actions, self.head_sizes, self.dtype),
        )
