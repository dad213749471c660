"""Tasks of POPGym, which need memory (Morad et al. 2023); the extra `popgym`.

Observations are flattened, and what is `Discrete` in them is one-hot: the suit of a card is
`[4] int64` with one 1. Rewards of an episode add up to between -1 and 1.

RepeatPrevious: one card is dealt per step, and the agent names the suit of the card `k - 1` cards
before the one that it sees. Easy is `k = 4` with one deck: 51 steps, of which the first three pay
nothing, whatever is answered. Perfect memory has 1, guessing -0.5. Since the cards of a deck run
out, a policy without memory gains a little over guessing at most.
"""

from typing import Any

import gymnasium
import popgym  # noqa: F401  registers its tasks
from gymnasium.wrappers import FlattenObservation


def make(task: str = "RepeatPreviousEasy", **arguments: Any) -> gymnasium.Env[Any, Any]:
    """The task that POPGym registers as `popgym-<task>-v0`; `arguments` are gymnasium's."""
    # Without gymnasium's checker, which looks at every step.
    env = gymnasium.make(f"popgym-{task}-v0", disable_env_checker=True, **arguments)
    return FlattenObservation(env)
