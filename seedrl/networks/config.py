"""The configurations of the bundled networks: torso, recurrent core and heads."""

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

from seedrl.fields import check_types
from seedrl.networks import heads, sac
from seedrl.networks.build import from_config
from seedrl.networks.network import Network
from seedrl.specs import DiscreteSpec, EnvSpec

Torso = Literal["auto", "mlp", "nature", "shallow", "impala", "minatar"]
Core = Literal["lstm", "gru", "none"]
Precision = Literal["float32", "bfloat16"]


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

    torso: Torso = "auto"
    torso_sizes: tuple[int, ...] = (512,)
    core: Core = "lstm"
    core_size: int = 512
    head_sizes: tuple[int, ...] = (512,)
    dueling: bool = True
    frame_stack: int | None = None
    dtype: Precision = "float32"

    def __post_init__(self) -> None:
        _check(self, counts=("core_size", "frame_stack"), sizes=("torso_sizes", "head_sizes"))

    def build(self, spec: EnvSpec) -> Network:
        """The network for environments of this spec.

        `unroll` gives Q-values `[T, B, A] float32`. Raises ConfigError where an image is needed (a
        convolutional torso, frame stacking) and the observation has none.
        """
        assert isinstance(spec.action, DiscreteSpec), "the agent has refused other actions"
        num_actions = spec.action.num_actions
        head = heads.DuelingHead if self.dueling else heads.QHead
        return from_config(
            self,
            spec,
            num_actions,
            head=functools.partial(head, num_actions, self.head_sizes, self.dtype),
        )


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

    torso: Torso = "auto"
    torso_sizes: tuple[int, ...] = (256,)
    core: Core = "lstm"
    core_size: int = 256
    head_sizes: tuple[int, ...] = ()
    frame_stack: int | None = None
    dtype: Precision = "float32"

    def __post_init__(self) -> None:
        _check(self, counts=("core_size", "frame_stack"), sizes=("torso_sizes", "head_sizes"))

    def build(self, spec: EnvSpec) -> Network:
        """The network for environments of this spec.

        `unroll` gives a `PolicyAndValue`, or of a box of actions a `GaussianAndValue`, whose
        standard deviation is a parameter and begins as 0.5. Raises ConfigError where an image is
        needed (a convolutional torso, frame stacking) and the observation has none.
        """
        if isinstance(spec.action, DiscreteSpec):
            size = spec.action.num_actions
            head: Any = heads.PolicyAndValueHead
        else:
            size = math.prod(spec.action.shape)
            head = heads.GaussianAndValueHead
        made = functools.partial(head, size, self.head_sizes, self.dtype)
        return from_config(self, spec, size, head=made)


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

    torso: Torso = "auto"
    core: Core = "none"
    core_size: int = 128
    actor_sizes: tuple[int, ...] = (256, 256)
    critic_sizes: tuple[int, ...] = (256, 256)
    lowest_log_std: float = -20.0
    highest_log_std: float = 2.0
    dtype: Precision = "float32"

    def __post_init__(self) -> None:
        _check(self, counts=("core_size",), sizes=("actor_sizes", "critic_sizes"))
        if not self.lowest_log_std < self.highest_log_std:
            raise ValueError(
                f"network.lowest_log_std: expected less than network.highest_log_std "
                f"({self.highest_log_std}), got {self.lowest_log_std}"
            )

    def build(self, spec: EnvSpec) -> sac.BoxNetwork:
        """The networks for environments of this spec, whose actions are a box.

        Raises ConfigError for a convolutional torso where the observation has no image for it.
        """
        return sac.build_network(self, spec)


def _check(config: Any, *, counts: tuple[str, ...], sizes: tuple[str, ...]) -> None:
    """Raises ValueError for the first field of a network's configuration that cannot work."""
    check_types("network.", config)  # before anything is compared
    for name in counts:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ValueError(f"network.{name}: expected at least 1, got {value}")
    for name in sizes:
        if any(size < 1 for size in getattr(config, name)):
            raise ValueError(f"network.{name}: expected sizes >= 1, got {getattr(config, name)}")
