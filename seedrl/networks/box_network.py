"""The configuration of networks for real actions: a Gaussian policy and twin Q-values.

What it builds is in `box_module`: reading a configuration imports no jax.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from seedrl.config_types import check_types

if TYPE_CHECKING:  # import jax and numpy
    from seedrl.networks.box_module import BoxNetwork
    from seedrl.specs import EnvSpec


@dataclass(frozen=True, kw_only=True)
class BoxNetworkConfig:
    """An actor and twin critics, each with a torso of its own, which share a memory or nothing.

    With a recurrent core one memory, with another torso of its own, sees each observation, the
    previous executed action and the previous reward, both zeros on FIRST; the reward is raw. What
    it gives, actor and critics see beside the observation.

    The torso divides uint8 by 255, whatever its shape, and takes all else at its value: `Discrete`
    is one number, not one-hot, and floats are not normalized; do both in the environment. The
    arrays of a dict (by sorted keys) or tuple are concatenated in that order.

    Attributes:
      torso: encoder of images, which are uint8 or float16 arrays of `[H, W]` or `[H, W, C]`; "mlp"
        flattens them; "auto" is "nature" where an image has at least 36 x 36, else "mlp"; "shallow"
        is the small one of IMPALA, "minatar" one convolution, for small images. What the encoder
        does not take is flattened.
      core: recurrent core of the memory; "none" is no memory.
      core_size: its units.
      actor_sizes: hidden layers of the actor, after its torso. SAC's authors: 256, 256.
      critic_sizes: hidden layers of each critic, which sees the action beside the observation.
        SAC's authors: 256, 256.
      lowest_log_std: the logarithm of the standard deviation before tanh is clipped to this and to
        `highest_log_std`. SAC's authors: -20.
      highest_log_std: see `lowest_log_std`. SAC's authors: 2.
      dtype: of matrix products and convolutions. Parameters and results stay float32.
    """

    torso: Literal["auto", "mlp", "nature", "shallow", "impala", "minatar"] = "auto"
    core: Literal["lstm", "gru", "none"] = "none"
    core_size: int = 128
    actor_sizes: tuple[int, ...] = (256, 256)
    critic_sizes: tuple[int, ...] = (256, 256)
    lowest_log_std: float = -20.0
    highest_log_std: float = 2.0
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        check_types("network.", self)  # before anything is compared
        if self.core_size < 1:
            raise ValueError(f"network.core_size: expected at least 1, got {self.core_size}")
        for name in ("actor_sizes", "critic_sizes"):
            if any(size < 1 for size in getattr(self, name)):
                raise ValueError(f"network.{name}: expected sizes >= 1, got {getattr(self, name)}")
        if not self.lowest_log_std < self.highest_log_std:
            raise ValueError(
                f"network.lowest_log_std: expected less than network.highest_log_std "
                f"({self.highest_log_std}), got {self.lowest_log_std}"
            )

    def build(self, spec: "EnvSpec") -> "BoxNetwork":
        """The networks for environments of this spec, whose actions are a box.

        Raises ConfigError for a convolutional torso where the observation has no image for it.
        """
        from seedrl.networks import box_module

        return box_module.build_network(self, spec)
