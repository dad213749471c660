"""Distributed reinforcement learning with central inference, in JAX."""

import typing as _typing

if _typing.TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from seedrl.config import Config
    from seedrl.policy import Policy
    from seedrl.run import Run

__all__ = ["load_policy", "train"]

# Env servers import this package and must stay thin: each function imports when it is called.


def train(
    config: "str | Path | Config", *, workdir: "str | Path | None" = None, **options: _typing.Any
) -> "Run":
    """Starts `seedrl train` as a child process and returns at once; see `seedrl.run.Run`.

    Args:
      config: name of a bundled configuration, path of a config file, or a `seedrl.config.Config`.
      workdir: folder of the run; by default a new one below `runs`.
      options: the command's flags: `env_servers=2`, and fields of the configuration by section:
        `learning={"total_steps": 20_000}`.

    Raises ConfigError if a Config cannot be passed to another process. All else that is wrong ends
    the run, and its handle raises RunError.
    """
    from seedrl.run import start

    return start(config, workdir, options)


def load_policy(
    workdir: "str | Path",
    *,
    seed: int = 0,
    step: int | None = None,
    best: bool = False,
    epsilon: float = 0.0,
    allow: "Sequence[str | Path]" = (),
) -> "Policy":
    """The policy of a run's newest checkpoint; the arguments are those of `seedrl.policy.load`."""
    from seedrl.policy import load

    return load(workdir, seed=seed, step=step, best=best, epsilon=epsilon, allow=allow)
