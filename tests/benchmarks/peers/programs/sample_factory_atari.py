"""A game as Sample Factory's asynchronous PPO learns it: `FILE FLAGS`.

Trains with these flags of Sample Factory until it is killed, and writes a line every ten seconds:
seconds since the start, environment steps that went through learning, and the mean return
of the last 100 whole games. Frames are of 44 x 44 pixels; all else is what Sample Factory's own
example of Atari does: an episode is a life, if the game has lives, FIRE is pressed at its start,
and rewards are clipped.
"""

import functools
import json
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sf_examples.atari import atari_utils
from sf_examples.atari.atari_params import atari_override_defaults

_START = time.monotonic()
_INTERVAL_SECONDS = 10.0
_RETURN = "RecordEpisodeStatistics_reward"  # of whole games, as they give it; "reward": of lives

# Its environment resizes frames to 84 x 84, without a choice. Its processes import this file, too.
_resize = gymnasium.wrappers.ResizeObservation
gymnasium.wrappers.ResizeObservation = lambda env, shape: _resize(env, (44, 44))


def main() -> int:
    path, *flags = sys.argv[1:]
    parser, partial = parse_sf_args(flags)
    register_env(partial.env, atari_utils.make_atari_env)
    atari_override_defaults(partial.env, parser)
    _, runner = make_runner(parse_full_cfg(parser, flags))
    runner.init()
    write = functools.partial(_write, runner, Path(path))
    threading.Thread(target=write, daemon=True).start()
    return runner.run()


def _write(runner: Any, path: Path) -> None:
    with path.open("w") as file:
        while True:
            time.sleep(_INTERVAL_SECONDS)
            steps = int(runner.total_env_steps_since_resume or 0)
            point = {"seconds": round(time.monotonic() - _START, 1), "steps": steps}
            print(json.dumps(point | {"return": _mean_return(runner)}), file=file, flush=True)


def _mean_return(runner: Any) -> float | None:
    while _RETURN in runner.policy_avg_stats:
        try:
            returns = [float(each) for each in runner.policy_avg_stats[_RETURN][0]]
            return round(statistics.fmean(returns), 3) if returns else None
        except RuntimeError:  # the other thread has added one
            time.sleep(0.01)
    return None


if __name__ == "__main__":
    sys.exit(main())
