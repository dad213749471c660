"""The configurations of the bundled networks: torso, recurrent core and heads."""

import functools
from dataclasses import dataclass
from typing import Any, Literal

from seedrl.fields import PositiveInt, check_fields
from seedrl.networks import heads, sac
from seedrl.networks.build import from_config
from seedrl.networks.network import Network, num_outputs_of
from seedrl.specs import BoxSpec, DiscreteSpec, EnvSpec

Torso = Literal["auto", "mlp", "nature", "impala", "minatar"]
Core = Literal["lstm", "none"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """A torso and a recurrent core, common to all bundled networks.

    A core sees the torso's output, the previous executed action (one-hot, or the numbers of a box)
    and the previous reward, both zeros on FIRST. The reward is raw without `normalize_rewards`:
    scale rewards of thousands in the environment. `seedrl.observations` has the table of what a
    torso makes of an array: pictures are convolved, categories one-hot, integers scaled by their
    bounds, floats as they are. The arrays of a dict (by sorted keys) or tuple are concatenated.

    `build` raises ConfigError if a torso is named that convolves no array of the observation, or if
    rows, columns and channels of a picture cannot be told by its sizes.

    Attributes:
      torso: encoder of pictures of any dtype and layout; all other arrays are flattened. "mlp"
        flattens pictures too; "auto" is "nature" if a picture has at least 36 x 36, else "mlp";
        "minatar" is one convolution, for small pictures.
      core: recurrent core; "none" is no memory.
      core_size: units of the recurrent core.
      dtype: dtype of matrix products and convolutions. Parameters, recurrent state and output stay
        float32.
    """

    torso: Torso = "auto"
    core: Core = "lstm"
    core_size: PositiveInt = 512
    dtype: Precision = "float32"

    def __post_init__(self) -> None:
        check_fields("network.", self)


@dataclass(frozen=True, kw_only=True)
class QNetworkConfig(NetworkConfig):
    """A dueling Q-network.

    The defaults are R2D2's (Kapturowski et al. 2019, appendix), and SEED RL's dense layer.

    Attributes:
      torso_sizes: dense layers after the torso, on all arrays of the observation together.
      head_sizes: hidden layers of the value and, apart from them, of the advantages.
      frame_stack: number of frames that the torso sees together, newest first: of pictures, or of
        all arrays if there are none. Frames before an episode's first are zeros. None is 4 for a
        gray or coloured picture that is convolved, else 1.
    """

    torso_sizes: tuple[PositiveInt, ...] = (512,)
    head_sizes: tuple[PositiveInt, ...] = (512,)
    frame_stack: PositiveInt | None = None

    def build(self, spec: EnvSpec) -> Network:
        """The network for environments of this spec: `unroll` gives `[T, B, A] float32`."""
        assert isinstance(spec.action, DiscreteSpec), "the agent has refused other actions"
        num_actions = spec.action.num_actions
        made = functools.partial(heads.DuelingHead, num_actions, self.head_sizes, self.dtype)
        return from_config(self, spec, head=made)


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(NetworkConfig):
    """A network of a policy and of its value, which share torso and core.

    Attributes:
      torso_sizes: dense layers after the torso, on all arrays of the observation together.
      head_sizes: hidden layers of the policy and, apart from them, of the value.
      frame_stack: number of frames that the torso sees together, newest first: of pictures, or of
        all arrays if there are none. Frames before an episode's first are zeros. None is 4 for a
        gray or coloured picture that is convolved, else 1.
    """

    core_size: PositiveInt = 256
    torso_sizes: tuple[PositiveInt, ...] = (256,)
    head_sizes: tuple[PositiveInt, ...] = ()
    frame_stack: PositiveInt | None = None

    def build(self, spec: EnvSpec) -> Network:
        """The network for environments of this spec.

        `unroll` gives a `PolicyAndValue`, or of a box of actions a `GaussianAndValue`, whose std is
        a parameter and begins as 0.5.
        """
        # Of MultiDiscrete the logits of all elements are one vector, which the agent splits.
        is_box = isinstance(spec.action, BoxSpec)
        head: Any = heads.GaussianAndValueHead if is_box else heads.PolicyAndValueHead
        size = num_outputs_of(spec.action)
        made = functools.partial(head, size, self.head_sizes, self.dtype)
        return from_config(self, spec, head=made)


@dataclass(frozen=True, kw_only=True)
class BoxNetworkConfig(NetworkConfig):
    """An actor and twin critics, each with a torso of its own, which share a memory or nothing.

    The memory is a recurrent core with another torso; actor and critics see its output next to the
    observation. By default there is none.

    Attributes:
      actor_sizes: hidden layers of the actor, after its torso. SAC's authors: 256, 256.
      critic_sizes: hidden layers of each critic, which sees the action next to the observation.
        SAC's authors: 256, 256.
    """

    core: Core = "none"  # as the paper
    core_size: PositiveInt = 128
    actor_sizes: tuple[PositiveInt, ...] = (256, 256)
    critic_sizes: tuple[PositiveInt, ...] = (256, 256)

    def build(self, spec: EnvSpec) -> sac.BoxNetwork:
        """The networks for environments of this spec, whose actions are a box."""
        return sac.build_network(self, spec)
