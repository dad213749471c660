"""`seedrl train CONFIG`, `seedrl resume RUN` and `python -m learner CONFIG`: a learner.

The first two also start its env servers.
"""

import contextlib
import gc
import logging
import os
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from learner.cli.arguments import (
    help_of,
    parse,
    profile_fields,
    require_at_least,
    require_time_steps,
)
from learner.cli.balance import require_overlap
from learner.multihost.topology import ALONE, Topology, topology_of
from learner.processes import env_servers
from learner.processes.locks import lock
from learner.processes.stop import ENV_SERVERS_FAILED, StopRequest, stop_on_signals
from learner.processes.tuning import require_jax
from learner.report.output import tolerating_lost_output
from seedrl import run_files
from seedrl.config import Config, ServingConfig, check
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.fields import with_fields
from seedrl.hints import require_extra
from seedrl.programs.command_line import HELP
from seedrl.programs.flags import RUN, Flag, Mark
from seedrl.programs.help import print_version_if_asked
from seedrl.programs.outcome import exit_code

PROG = "seedrl train"
RESUME_PROG = "seedrl resume"
LEARNER_PROG = "python -m learner"
_RUN = Flag(("run",), str, meaning="directory of a run", mark=RUN)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of `seedrl train` and of a learner, in addition to the configuration's fields.

    Attributes:
      resume: resume from the newest checkpoint of the run. auto: if there is one; never: start
        again; must: fail if there is none.
      init_from: start from the newest parameters of this run. If only its best ones are saved,
        those; RUN/checkpoints/best always means the best. Statistics of rewards are copied only for
        the same environment and agent.gamma. Ignored when resuming.
      init_from_partial: copy from --init-from only the parameters that fit. Path, shape and type
        must match; the others, for example the head, are initialized as usual. A line lists both.
      allow: code that CONFIG may name if CONFIG is a run's config.json. Directories of Python
        files, and environment factories (package.module:factory).
    """

    resume: Literal["auto", "never", "must"] = "auto"
    init_from: Annotated[Path | None, Mark("RUN")] = None
    init_from_partial: bool = False
    allow: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.init_from_partial and self.init_from is None:
            raise ConfigError("--init-from-partial: expected --init-from RUN with it, got none")


@dataclass(frozen=True, kw_only=True)
class LearnerOptions(RunOptions):
    """Run only the learner; env servers connect to it from this or other machines.

    --bind ADDRESS and --token-file PATH are short for --serving.bind and --serving.token-file;
    --help-all lists these and the options for certificates, saving and monitoring.

    Example: python -m learner pong_ppo --workdir runs/pong --bind 127.0.0.1:8686 --token-file token

    Attributes:
      workdir: directory of the run: configuration, metrics, checkpoints.
      name: name of the configuration in reports; by default as CONFIG.
      user_command: command line to write into the directory's command.txt; by default this one.
      process_count: number of learner processes that share the run, each with the devices of its
        host and its own env servers; all need the same CONFIG, --workdir and fields.
      coordinator: HOST:PORT of the first learner process, as the others reach it.
      process_index: index of this learner process, from 0. Process 0 evaluates, saves and reports.
    """

    workdir: Path
    name: str | None = None
    user_command: str | None = None
    process_count: int = 1
    coordinator: str | None = None
    process_index: int | None = None


@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    """Continue a run with its own configuration, and --balance as before.

    Example: seedrl resume runs/pong

    Attributes:
      allow: code that the run may name. Directories of Python files, and environment factories
        (package.module:factory).
      balance: auto: change the number of env servers while the run trains, for environments that
        take milliseconds to step. Their groups and the batch deadline change, too, whenever that
        makes the run faster. Each env server then has a part of the slots, and
        `--most-env-servers` of them fill all; at least `--env-servers` run, up to that number.
      most_env_servers: most env servers of `--balance auto`.
    """

    allow: tuple[str, ...] | None = None
    balance: Literal["off", "auto"] = "off"
    most_env_servers: int = 16

    def __post_init__(self) -> None:
        require_at_least(self, most_env_servers=1)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions, ResumeOptions):
    """Train on this machine: a learner and its env servers.

    --envs, --env-servers and --groups are short for --serving.training-slots,
    --launch.env-servers and --launch.groups. With --envs a synchronous round has that many
    sequences too.

    Example: seedrl train cartpole_r2d2 --seed 1 --learning.total-steps 1e6

    Attributes:
      workdir: directory of the run; by default a new one, runs/CONFIG__SEED__UTC-TIME.
      profile: JSON file of `seedrl tune`. It sets env servers and slots for this machine; options
        override its fields.
    """

    workdir: Path | None = None
    profile: Path | None = None

    def __post_init__(self) -> None:
        RunOptions.__post_init__(self)
        ResumeOptions.__post_init__(self)


def read(argv: Sequence[str]) -> tuple[TrainOptions, Config]:
    """The options and the configuration of `seedrl train`. Raises ConfigError."""
    options, config = parse(TrainOptions, argv, prog=PROG)
    if options.profile is not None:
        config = with_fields(config, profile_fields(options.profile, argv))
    return options, config


def run(argv: Sequence[str]) -> int:
    """`seedrl train`: trains until the run is over; returns its exit code."""
    with stop_on_signals(shlex.join([*PROG.split(), *argv])) as stop:
        options, config = read(argv)
        name = Path(argv[0]).stem
        # UTC: names sort by time wherever runs were started.
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        workdir = options.workdir or Path("runs") / f"{name}__{config.seed}__{now}"
        # A saved configuration may be that of any run.
        name = workdir.name if options.workdir and argv[0].endswith(".json") else name
        return _run_with_env_servers(options, config, stop, workdir=workdir, name=name)


def resume(argv: Sequence[str]) -> int:
    """`seedrl resume RUN`: goes on by the run's own configuration; returns its exit code."""
    # Before the folder is looked at: help needs none.
    if set(HELP) & set(argv[:1]):
        help_of(ResumeOptions, argv, prog=RESUME_PROG, argument=_RUN)
    if not argv:
        raise ConfigError(
            f"expected the directory of a run, got nothing (see {RESUME_PROG} --help)"
        )
    # Also by its config.json, which a shell completes.
    run = Path(argv[0].removesuffix(f"/{run_files.CONFIG}"))
    if not (run / run_files.CONFIG).is_file():
        raise ConfigError(
            f"expected the directory of a run, got {run}, which has no {run_files.CONFIG}"
        )
    with stop_on_signals(shlex.join([*RESUME_PROG.split(), *argv])) as stop:
        from learner.checkpoints.run_records import (  # imports numpy
            commands_of,
            read_run,
            words_given,
        )

        words = [str(run / run_files.CONFIG)]
        # No fields of the configuration. If a flag is given twice, the last one counts.
        for line in commands_of(run):
            if line.startswith("seedrl train "):  # which takes nothing from the sessions before
                del words[1:]
            words += words_given(line, "--balance", "--most-env-servers")
        options, config = parse(ResumeOptions, [*words, *argv[1:]], prog=RESUME_PROG)
        own = TrainOptions(**vars(options), resume="must")
        name = read_run(run).config or run.name
        return _run_with_env_servers(own, config, stop, workdir=run, name=name)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m learner`: a learner without env servers of its own; returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    # From the first moment on: a signal while jax is imported must not be lost.
    with stop_on_signals(shlex.join([*LEARNER_PROG.split(), *words])) as stop:
        return exit_code(lambda: _run_learner(words, stop), prog=LEARNER_PROG)


def _run_with_env_servers(
    options: TrainOptions, config: Config, stop: StopRequest, *, workdir: Path, name: str
) -> int:
    # XLA reads its flags when jax starts, and `train` sets some first.
    require_jax(starts=False)
    fleet, most = plan(config), options.most_env_servers
    if options.balance == "auto":
        fleet, most = _with_room(fleet, config, most=options.most_env_servers)
    if _is_stopped(stop):
        return ExitCode.OK
    # Imports gRPC: only once the command line is known to be good.
    from learner.serving.access import with_address

    config = with_address(config, workdir)
    with contextlib.ExitStack() as stack:
        stack.enter_context(tolerating_lost_output())
        # Before env servers start there: a second `seedrl train` of the folder must not start any.
        held = lock(workdir)
        stack.callback(os.close, held)
        if _needs_token(config.serving):
            # Outside the run's directory, which others may be able to read.
            token = stack.enter_context(env_servers.private_folder()) / "token"
            token.touch(mode=0o600)  # before it has content, so that no other user ever reads it
            token.write_text(secrets.token_hex(32))
            config = with_fields(config, {"serving.token_file": str(token)})
        logs = workdir / run_files.LOGS

        def started(part: env_servers.Fleet, folder: str) -> env_servers.EnvServers:
            words = env_servers.command(part, config, logs=logs / folder)
            return env_servers.EnvServers(
                words, on_failure=lambda line: stop.set(f"{ENV_SERVERS_FAILED}: {line}")
            )

        # First, so that they import and build while this process imports jax.
        fleets = env_servers.Fleets(fleet, started, most=most)
        stack.enter_context(fleets)
        changing = fleets if options.balance == "auto" else None
        # In this very process, with one child for all env servers.
        code = _train(options, config, stop, workdir=workdir, name=name, held=held, fleets=changing)
        if stop.by.startswith(ENV_SERVERS_FAILED):  # else the run had ended before they failed
            fleets.raise_failure()
        return code


def _run_learner(argv: Sequence[str], stop: StopRequest) -> int:
    print_version_if_asked(argv)
    # Env servers build the environments, and have an --allow-env of their own.
    options, config = parse(LearnerOptions, argv, prog=LEARNER_PROG, builds=False)
    require_jax(starts=False)
    check(config)
    topology = topology_of(options.coordinator, options.process_count, options.process_index)
    # What the user typed, if a scheduler has started this process.
    stop.command = options.user_command or stop.command
    if _is_stopped(stop):
        return ExitCode.KILLED if options.process_count > 1 else ExitCode.OK
    name = options.name or Path(argv[0]).stem
    with tolerating_lost_output():
        return _train(options, config, stop, workdir=options.workdir, name=name, topology=topology)


def _train(
    options: RunOptions,
    config: Config,
    stop: StopRequest,
    *,
    workdir: Path,
    name: str,
    topology: Topology = ALONE,
    held: int | None = None,
    fleets: env_servers.Fleets | None = None,
) -> ExitCode:
    """Runs the learner in this process, until the run is over."""
    # Now, and not by a warning an hour later: the extra may be missing.
    if config.logging.wandb is not None:
        require_extra("wandb")
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    # Orbax answers a full disk with pages of traceback; we report it in one line.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = _without_lost_loops
    # Looking for garbage in all that is imported takes a tenth of that time, and finds hardly any.
    gc.disable()
    try:
        # Imports jax: only once the command line is known to be good.
        from learner.report.terminal import print_summary
        from learner.train import train
    finally:
        gc.enable()
    ended = train(
        config,
        workdir=workdir,
        resume=options.resume,
        init_from=options.init_from,
        init_from_partial=options.init_from_partial,
        name=name,
        stop=stop,
        topology=topology,
        lock=held,
        fleets=fleets,
    )
    # Signals change nothing from here on: the run is over and saved.
    stop.exit_code = code = ended if isinstance(ended, ExitCode) else ended.exit_code
    if not isinstance(ended, ExitCode) and topology.is_first:
        print_summary(ended)
    return code


def _without_lost_loops(unraisable: "sys.UnraisableHookArgs") -> None:
    # Of each write that tensorstore ends after a save has failed.
    if str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


def _is_stopped(stop: StopRequest) -> bool:
    """True, and one line, if a signal has come before there is anything to save."""
    if stop.is_set():
        print(f"stopped by {stop.by}{stop.before_start()}", file=sys.stderr, flush=True)
    return stop.is_set()


def plan(config: Config) -> env_servers.Fleet:
    """The run's env servers. Raises ConfigError if the configuration cannot work."""
    planned = env_servers.plan(config)
    # Its own env servers connect without TLS, by a socket or a port of this host.
    if config.serving.certificate:
        raise ConfigError(
            "serving.certificate: the env servers of `seedrl train` run on this machine, without "
            "TLS; start the learner with `python -m learner`"
        )
    if config.serving.bind.endswith(":0"):
        raise ConfigError(
            "serving.bind: expected a port other than 0, which the env servers know, got "
            f"{config.serving.bind!r}"
        )
    # As it will serve: without the token, which comes later, a port would be refused.
    token = {"serving.token_file": "token"} if _needs_token(config.serving) else {}
    check(with_fields(config, token))
    return planned


def _with_room(
    fleet: env_servers.Fleet, config: Config, *, most: int
) -> tuple[env_servers.Fleet, int]:
    """The fleet with smaller env servers, and how many of them, `most` or fewer, fill all slots."""
    require_time_steps(config)
    require_overlap(config)
    if config.launch.envs_per_server:
        raise ConfigError(
            "launch.envs_per_server: expected 0 with --balance auto, which divides the slots by "
            f"--most-env-servers, got {config.launch.envs_per_server}"
        )
    slots = config.serving.training_slots + config.serving.evaluation_slots
    num_envs = -(-slots // most)
    most = -(-slots // num_envs)  # no slot is left for another one
    return fleet._replace(num_envs=num_envs, num_servers=min(fleet.num_servers, most)), most


def _needs_token(serving: ServingConfig) -> bool:
    """True if a port is served that needs a token, and none is given."""
    is_port = bool(serving.bind) and not serving.bind.startswith("unix:")
    return is_port and not serving.insecure and not serving.token_file
