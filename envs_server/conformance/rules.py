"""What is asked of an environment: each rule with what to do about a breach of it.

A rule that `is_error` fails the check: training would stop, or learn from something else than what
the environment means. The others are notes: they may be intended.
"""

from typing import NamedTuple


class Rule(NamedTuple):
    """A rule by name, e.g. `reward-finite`, and how to fix what breaks it."""

    name: str
    remedy: str
    is_error: bool = True


ENVIRONMENT_CLASS = Rule("environment-class", "derive the environment from gymnasium.Env")
SPACES = Rule("spaces", "declare other spaces, or wrap the environment in one that does")
RESET_SIGNATURE = Rule(
    "reset-signature", "declare `def reset(self, *, seed=None, options=None)` and pass the seed on"
)
RESET_RESULT = Rule("reset-result", "return the tuple (observation, info) from reset")
STEP_RESULT = Rule(
    "step-result",
    "return (observation, reward, terminated, truncated, info) from step; the old `done` is "
    "terminated or truncated",
)
INFO = Rule("info", "return a dict as info, {} if there is nothing to say")
RESET_RAISES = Rule("reset-raises", "fix it: reset must work at any time after construction")
STEP_RAISES = Rule(
    "step-raises", "fix it: step must take every action of the space until the episode ends"
)
CLOSE_RAISES = Rule("close-raises", "fix it: close must work once, whatever went before")

OBSERVATION_STRUCTURE = Rule(
    "observation-structure", "return what observation_space declares, from reset and step alike"
)
OBSERVATION_DTYPE = Rule(
    "observation-dtype", "convert with np.asarray(..., dtype), or declare the dtype that is meant"
)
OBSERVATION_CAST = Rule(
    "observation-cast", "return the declared dtype to save the conversion at every step", False
)
OBSERVATION_SHAPE = Rule(
    "observation-shape", "return the declared shape every time, or declare the one that is meant"
)
OBSERVATION_FINITE = Rule(
    "observation-finite", "never return NaN or infinity; look for a division by 0 or an overflow"
)
OBSERVATION_WIDTH = Rule(
    "observation-width",
    "learners compute in 32 bits: scale or clip the observation, or split it into several numbers",
)
OBSERVATION_RANGE = Rule(
    "observation-range", "clip the observation, or declare bounds that hold (-inf and inf may be)"
)
OBSERVATION_ALIASING = Rule(
    "observation-aliasing", "return a new array every time: `return self.state.copy()`"
)

REWARD_SCALAR = Rule("reward-scalar", "return one number: `float(reward)`")
REWARD_FINITE = Rule("reward-finite", "return a reward that is finite as float32")
FLAGS = Rule("flags", "return terminated and truncated as bools: `bool(...)`")
BOTH_FLAGS = Rule(
    "both-flags",
    "it counts as terminated; set truncated alone where the state could have gone on; nothing is "
    "to be fixed where the episode truly ended in the limit's last step",
    False,
)
TIME_LIMIT = Rule(
    "time-limit",
    "set truncated at a time limit, not terminated: the value of the last state still counts",
)
SAME_LENGTH = Rule(
    "same-length",
    "if that is a time limit, set truncated instead; if the task is over then, all is well",
    False,
)
ENDLESS = Rule(
    "endless",
    "only ended episodes are scored: look further with --steps, or add gymnasium's TimeLimit",
    False,
)

SEEDING = Rule(
    "seeding",
    "call super().reset(seed=seed) in reset, and draw from self.np_random alone: not from "
    "np.random, random or the clock",
)
ISOLATION = Rule(
    "isolation",
    "an env server steps many environments in one process: keep all state, random numbers "
    "included, in the instance and not in the class, the module or a global generator",
)
SEED_IGNORED = Rule(
    "seed-ignored",
    "all environments will play the same; if anything is meant to be random, draw it from "
    "self.np_random after super().reset(seed=seed)",
    False,
)
RESET_STATE = Rule(
    "reset-state", "set every flag and counter of the episode back to its start in reset"
)
RESEEDING = Rule(
    "reseeding", "something outlives reset; if that is not meant, set it back there", False
)
UNTRIED_ACTIONS = Rule("untried-actions", "try all of them with more --steps", False)
GYMNASIUM = Rule("gymnasium", "see the documentation of gymnasium.Env", False)

BACK_END_SPEC = Rule(
    "back-end-spec", "make the vector implementation declare the spaces of the single environment"
)
BACK_END_STEPS = Rule(
    "back-end-steps", "keep nothing in the environment that depends on who calls it, or when"
)
BACK_END_RAISES = Rule("back-end-raises", "fix it: the vector implementation must not raise")
WIRE = Rule(
    "wire",
    "return arrays [num_envs, ...] of exactly the shapes and dtypes of the spaces, finite numbers "
    "only",
)
AUTORESET = Rule(
    "autoreset",
    "implement AutoresetMode.NEXT_STEP: end with the true last observation; the next step ignores "
    "its action, and returns the first observation of the next episode with reward 0",
)
LAST_OBSERVATION = Rule(
    "last-observation",
    "end with the true last observation; if the environment resets itself within step, leave that "
    "to the env server",
    False,
)
ACTION_INPUT = Rule("action-input", "copy the actions before changing them")
