"""R2D2 on RepeatPreviousEasy of POPGym: the suit of the card three cards ago is to be named.

Perfect memory has a return of 1, the best policy without memory -0.49. Actions decide about no
card, so a low discount loses nothing. Needs POPGym: `pip install '.[popgym]'` for env servers.

Seeds 0 to 4: 0.91 to 1.00 over the 100 confirming episodes, after 97,744 to 138,696 steps (median
26 seconds); without memory (`--agent.network.core none`) -0.51 to -0.49. Two busy cores of a Xeon
at 2.5 GHz; 2026-11-22, commit 45a4281.
"""

from seedrl.config import Config
from seedrl.config_io import load
from seedrl.fields import with_fields


def config() -> Config:
    return with_fields(
        load("recall_r2d2"),
        {
            "environment.id": "envs_server.envs.popgym:make",
            "agent.reward_scale": 48.0,
            "evaluation.target_return": 0.9,
        },
    )
