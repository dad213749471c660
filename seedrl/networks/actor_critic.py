"""The configuration of an actor-critic network: torso, recurrent core, policy and value heads.

What it builds is in `module` and `heads`: reading a configuration imports no jax.
"""

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from seedrl.networks.field_checks import check_fields
from seedrl.networks.network import Network

if TYPE_CHECKING:  # imports numpy
    from seedrl.specs import EnvSpec


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """A network of a policy and of its value.

    A recurrent core sees the torso's output, the previous executed action (one-hot, or the numbers
    of a box) and the previous reward, both zeros on FIRST. Without a core, the heads see the
    torso's output alone.

    What a default leaves open follows from the observation, in `build`.

    Attributes:
      torso: encoder of images, which are uint8 or float16 arrays of `[H, W]` or `[H, W, C]`; "mlp"
        flattens them; "auto" is "nature" where an image has at least 36 x 36, else "mlp"; "shallow"
        is the small one of IMPALA, "minatar" one convolution, for small images. What the encoder
        does not take is flattened.
      torso_sizes: dense layers after it, which policy and value share.
      core: recurrent core.
      core_size: its units.
      head_sizes: hidden layers of the policy and, apart from them, of the value.
      frame_stack: frames that the torso sees at once of every image, newest first; 1 stacks
        nothing; None is 4 where the encoder takes an image, else 1: images that are flattened, such
        as `uint8[4, 4, 3]`, are not stacked by default.
      dtype: of matrix products and convolutions. Parameters, carry and output stay float32.
    """

    torso: Literal["auto", "mlp", "nature", "shallow", "impala", "minatar"] = "auto"
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

        `unroll` gives a `PolicyAndValue`, or of a box of actions a `GaussianAndValue`, whose
        standard deviation is a parameter and begins as 0.5. Raises ConfigError where an image is
        needed (a convolutional torso, frame stacking) and the observation has none.
        """
        from seedrl.networks import heads, module
        from seedrl.specs import DiscreteSpec

        if isinstance(spec.action, DiscreteSpec):
            size = spec.action.num_actions
            head: Any = heads.PolicyAndValueHead
        else:
            size = math.prod(spec.action.shape)
            head = heads.GaussianAndValueHead
        made = functools.partial(head, size, self.head_sizes, self.dtype)
        return module.from_config(self, spec, size, head=made)
