"""IMPALA on RepeatPreviousEasy of POPGym: the suit of the card three cards ago is to be named.

Perfect memory has a return of 1, the best policy without memory -0.49. Actions decide about no
card, so a low discount loses nothing. Needs POPGym: `pip install '.[popgym]'` for env servers.

Seeds 0 to 4: 0.91 to 0.99 over the 100 confirming episodes, after 470,064 to 733,544 steps (median
67 seconds); without memory (`--agent.network.core none`) -0.50 to -0.48. Two busy cores of a Xeon
at 2.5 GHz; 2026-11-22, commit 45a4281.
"""

from seedrl.config import Config
from seedrl.config_io import load
from seedrl.fields import with_fields


def config() -> Config:
    return with_fields(
        load("recall_impala"),
        {
            "environment.id": "envs_server.envs.popgym:make",
            "agent.gamma": 0.9,
            "agent.reward_scale": 48.0,
            "evaluation.target_return": 0.9,
        },
    )
