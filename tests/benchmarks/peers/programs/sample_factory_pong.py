"""Sample Factory's asynchronous PPO on Pong, which trains until it is killed.

The first command is `{"flags": [...], "size": pixels}`, the height and width of a frame, and its
answer `{"ready": true}` once it trains. `{"seconds": s}` is answered s seconds later, with
`{"steps": n, "return": r}`: environment steps that went through learning, and the mean return
of the last 100 training episodes, null before the first has ended.
"""

import functools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
from answering import commands
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.envs.env_wrappers import (
    ClipRewardEnv,
    FireResetEnv,
    MaxAndSkipEnv,
    NoopResetEnv,
    NumpyObsWrapper,
)
from sample_factory.train import make_runner
from sf_examples.atari.atari_params import atari_override_defaults

_TICK_SECONDS = 0.05


def make_env(
    size: int, name: str, cfg: Any = None, env_config: Any = None, render_mode: Any = None
) -> Any:
    """As `sf_examples.atari.atari_utils` makes it, which knows frames of 84 x 84 alone."""
    env = gymnasium.make("PongNoFrameskip-v4", render_mode=render_mode)
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env = NoopResetEnv(env, noop_max=30)
    env = MaxAndSkipEnv(env, skip=cfg.env_frameskip)
    env = ClipRewardEnv(FireResetEnv(env))
    env = gymnasium.wrappers.ResizeObservation(env, (size, size))
    env = gymnasium.wrappers.GrayScaleObservation(env)
    return NumpyObsWrapper(gymnasium.wrappers.FrameStack(env, cfg.env_framestack))


def main() -> None:
    lines = commands()
    command, answer = next(lines)
    register_env("atari_pong", functools.partial(make_env, command["size"]))
    with tempfile.TemporaryDirectory() as folder:
        _, runner = make_runner(_configuration([*command["flags"], f"--train_dir={folder}"]))
        runner.init()

        def serve() -> None:
            while runner.total_env_steps_since_resume is None:
                time.sleep(_TICK_SECONDS)
            answer(ready=True)
            answer_points(lines, runner)

        threading.Thread(target=serve, daemon=True).start()
        runner.run()


def answer_points(lines: Iterator[Any], runner: Any) -> None:
    for command, answer in lines:
        time.sleep(command["seconds"])
        returns = _returns(runner)
        mean = float(statistics.fmean(returns)) if returns else None
        answer(**{"steps": int(runner.total_env_steps_since_resume or 0), "return": mean})


def _returns(runner: Any) -> list[float]:
    while "reward" in runner.policy_avg_stats:
        try:
            return [float(each) for each in runner.policy_avg_stats["reward"][0]]
        except RuntimeError:  # the other thread has added one
            time.sleep(_TICK_SECONDS)
    return []


def _configuration(flags: list[str]) -> Any:
    parser, partial = parse_sf_args(flags)
    atari_override_defaults(partial.env, parser)
    return parse_full_cfg(parser, flags)


if __name__ == "__main__":
    sys.exit(main())
