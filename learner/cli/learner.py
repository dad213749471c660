"""The learner: `python -m learner CONFIG --workdir DIR [options] [overrides]`."""

import dataclasses
import gc
import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from learner.cli.arguments import parse
from learner.hosts.place import place_of
from learner.reporting.output import tolerating_lost_output
from seedrl.config import Config
from seedrl.config_checks import check
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras
from seedrl.programs.abandoned import remove_abandoned
from seedrl.programs.command_line import print_version_if_asked
from seedrl.programs.outcome import exit_code

PROG = "python -m learner"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `seedrl train` and a learner know beside the fields of a configuration.

    Attributes:
      resume: whether to resume from the newest checkpoint in the folder: if there is one (auto),
        not at all (never), or it is an error if there is none (must).
      init_from: folder of another run, whose newest parameters a new run begins with, or the best
        if only these are saved; its checkpoints/best for those. Where there is something to resume
        from, they are not looked at.
      checkpoint_replay: save the replay with every checkpoint, same as `--checkpoint.replay`.
      bind: address to serve on, same as `--serving.bind`.
      token_file: file with the token that env servers must show, same as `--serving.token-file`.
      allow: what CONFIG may name if it is the config.json of a run: folders of Python files, and
        factories of environments, package.module:factory.
    """

    resume: Literal["auto", "never", "must"] = "auto"
    init_from: Path | None = None
    checkpoint_replay: bool = False
    bind: str | None = None
    token_file: str | None = None
    allow: tuple[str, ...] | None = None

    def apply(self, config: Config) -> Config:
        """The configuration with those options that stand for fields of it.

        Raises MissingPackageError if it needs a package that is not installed.
        """
        if config.logging.wandb is not None:
            extras.require("wandb")
        checkpoint, serving = config.checkpoint, config.serving
        if self.checkpoint_replay:
            checkpoint = dataclasses.replace(checkpoint, replay=True)
        if self.bind is not None:
            serving = dataclasses.replace(serving, bind=self.bind)
        if self.token_file is not None:
            serving = dataclasses.replace(serving, token_file=self.token_file)
        return dataclasses.replace(config, checkpoint=checkpoint, serving=serving)


@dataclass(frozen=True, kw_only=True)
class LearnerOptions(RunOptions):
    """Options of a learner beside the fields of its configuration.

    Attributes:
      workdir: folder of the run: configuration, metrics, checkpoints.
      resume: whether to resume from the newest checkpoint in the folder: if there is one (auto),
        not at all (never), or it is an error if there is none (must).
      init_from: folder of another run, whose newest parameters a new run begins with, or the best
        if only these are saved; its checkpoints/best for those. Where there is something to resume
        from, they are not looked at.
      checkpoint_replay: save the replay with every checkpoint, same as `--checkpoint.replay`.
      bind: address to serve on, same as `--serving.bind`.
      token_file: file with the token that env servers must show, same as `--serving.token-file`.
      allow: what CONFIG may name if it is the config.json of a run: folders of Python files, and
        factories of environments, package.module:factory.
      env_servers: how many env servers of one size share the slots, each with its part of training
        and evaluation; by default each takes what is free, training slots first, but half of that
        at most until its environments are built.
      name: what the run's configuration is called where it is shown; by default as CONFIG.
      user_command: the command line to write into the folder's command.txt; by default this one.
      stop_reason: file that may say why SIGTERM was sent; its sender writes it first.
      hosts: how many learner processes share the run, each on the devices of its host, with env
        servers of its own; all are started with the same CONFIG, --workdir and overrides.
      coordinator: HOST:PORT, where the first of them is reached by the others.
      host_index: which one this is, from 0. The first one evaluates, saves and reports.
    """

    workdir: Path
    env_servers: int | None = None
    name: str | None = None
    user_command: str | None = None
    stop_reason: Path | None = None
    hosts: int = 1
    coordinator: str | None = None
    host_index: int | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a learner; returns its exit code (`seedrl.exit_codes.ExitCode`)."""
    arguments = sys.argv[1:] if argv is None else argv
    return exit_code(lambda: _run(arguments), prog=PROG)


def _run(argv: Sequence[str]) -> int:
    # Until the session has started: looking for garbage in all that is imported and traced takes a
    # tenth of that time, and finds hardly any.
    gc.disable()
    print_version_if_asked(argv)
    options, config = parse(LearnerOptions, argv, prog=PROG)
    config = options.apply(config)
    check(config)
    place_of(options.coordinator, options.hosts, options.host_index)
    if options.env_servers is not None and options.env_servers < 1:
        raise ConfigError(f"--env-servers: expected at least 1, got {options.env_servers}")
    try:
        with tolerating_lost_output():
            return _train(options, config, argv)
    finally:
        # `seedrl train` may have been killed: what it cannot remove is left to its learner.
        if options.stop_reason is not None:
            remove_abandoned(options.stop_reason.parent)


def _train(options: LearnerOptions, config: Config, argv: Sequence[str]) -> ExitCode:
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    # Orbax answers a full disk with pages of traceback through absl; we say it in one line.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    # Imports jax: only once the command line is known to be good.
    from learner.reporting.progress import print_summary
    from learner.session.run import train

    place = place_of(options.coordinator, options.hosts, options.host_index)
    summary = train(
        config,
        workdir=options.workdir,
        resume=options.resume,
        init_from=options.init_from,
        env_servers=options.env_servers,
        command=options.user_command or shlex.join(["python", "-m", "learner", *argv]),
        name=options.name or Path(argv[0]).stem,
        stop_reason=options.stop_reason,
        place=place,
    )
    if summary is None:
        return ExitCode.OK
    if place.is_first:
        print_summary(summary)
    return ExitCode.TARGET_MISSED if summary.has_missed else ExitCode.OK
