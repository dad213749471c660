"""Sample Factory's asynchronous PPO, which trains until it is killed.

The first command is `{"flags": [...]}`. Then `{"seconds": s}` is answered with `{"rate": r}`,
environment steps a second that went through learning, from one update to another.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
from answering import commands
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sf_examples.atari.atari_params import atari_override_defaults
from sf_examples.atari.train_atari import register_atari_components

_WARM_UP_SECONDS = 15.0
_TICK_SECONDS = 0.002


def make_env(name: str, cfg: Any = None, env_config: Any = None, render_mode: Any = None) -> Any:
    return gymnasium.make(name, render_mode=render_mode)


def main() -> None:
    lines = commands()
    command, answer = next(lines)
    register_env("CartPole-v1", make_env)
    register_atari_components()
    with tempfile.TemporaryDirectory() as folder:
        _, runner = make_runner(_configuration([*command["flags"], f"--train_dir={folder}"]))
        runner.init()

        def serve() -> None:
            while runner.total_env_steps_since_resume is None:
                time.sleep(_TICK_SECONDS)
            time.sleep(_WARM_UP_SECONDS)
            answer(ready=True)
            measure(lines, lambda: runner.total_env_steps_since_resume or 0)

        threading.Thread(target=serve, daemon=True).start()
        runner.run()


def measure(lines: Iterator[Any], count: Callable[[], int]) -> None:
    """Answers with how fast `count` grows, from one change to another."""

    def change() -> tuple[int, float]:
        before = count()
        while (now := count()) == before:
            time.sleep(_TICK_SECONDS)
        return now, time.perf_counter()

    for command, answer in lines:
        before, start = change()
        time.sleep(command["seconds"])
        after, end = change()
        answer(rate=(after - before) / (end - start))


def _configuration(flags: list[str]) -> Any:
    parser, partial = parse_sf_args(flags)
    if partial.env.startswith("atari"):
        atari_override_defaults(partial.env, parser)
    return parse_full_cfg(parser, flags)


if __name__ == "__main__":
    sys.exit(main())
