"""Distributed reinforcement learning with central inference, in JAX."""

# Not `typing.TYPE_CHECKING`, whose import takes half of the time before Ctrl-C is answered.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from seedrl.config import Config
    from seedrl.policy import Policy
    from seedrl.run import Run
    from seedrl.token_env import (
        CharactersVocabulary,
        TokenEnv,
        TokenizerVocabulary,
        bytes_vocabulary,
    )
del TYPE_CHECKING

__all__ = [
    "CharactersVocabulary",
    "TokenEnv",
    "TokenizerVocabulary",
    "bytes_vocabulary",
    "load_policy",
    "train",
]

# Env servers import this package and must stay thin: each function imports when it is called.


def __getattr__(name: str) -> "Any":
    # Those that are not defined below import numpy, for which a command line need not wait.
    if name in __all__:
        from seedrl import token_env

        return getattr(token_env, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return __all__


def train(
    config: "str | Path | Config", *, workdir: "str | Path | None" = None, **options: "Any"
) -> "Run":
    """Starts `seedrl train` as a child process and returns at once; see `seedrl.run.Run`.

    Args:
      config: name of a bundled configuration, path of a config file, or a `seedrl.config.Config`.
      workdir: directory of the run; by default a new one below `runs`.
      options: the command's flags, such as `env_servers=2`, and fields of the configuration by
        section, such as `learning={"total_steps": 20_000}` or `environment={"id": "mine:make"}`.

    Raises ConfigError if a Config cannot be passed to another process. Any other mistake ends the
    run, and the methods of the returned Run raise RunError.
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
    allow: "str | Path | Sequence[str | Path]" = (),
) -> "Policy":
    """Loads a trained policy from a run's newest checkpoint.

    Args:
      workdir: directory of the run.
      seed: of the policy's random numbers.
      step: takes the checkpoint after this number of updates instead.
      best: takes the checkpoint with the best evaluation instead.
      epsilon: exploration; 0 takes the best action. It is the probability of a random action for
        R2D2 and Ape-X; IMPALA, PPO and SAC sample from the policy with 1.
      allow: code that the run may name, as for `seedrl evaluate`: a directory of Python files, or
        several. Not needed for an environment of your own, only for your own network or agent.

    Raises CheckpointError without such a checkpoint, and ConfigError if the run names other code.
    """
    from seedrl.policy import load

    return load(workdir, seed=seed, step=step, best=best, epsilon=epsilon, allow=allow)
