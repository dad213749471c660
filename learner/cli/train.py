"""`seedrl train CONFIG`: a learner and its env servers on this machine, supervised."""

import contextlib
import dataclasses
import functools
import secrets
import shlex
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from learner.cli.arguments import parse
from learner.cli.learner import RunOptions
from learner.launch import env_servers
from learner.launch.child import Command
from learner.launch.other_hosts import OtherHosts
from learner.launch.supervisor import LateReceiver, Supervisor, forward_signals
from learner.reporting.output import tolerating_lost_output
from learner.reporting.summary import resuming
from learner.saving.folder_lock import check_free, remove_refused
from seedrl import config_json, config_modules
from seedrl.config import Config, ServingConfig
from seedrl.config_checks import check
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras
from seedrl.storage.run_files import LOGS

PROG = "seedrl train"

# How a run ends that could not begin, through a mistake of its user.
_REFUSED = frozenset({ExitCode.USAGE, ExitCode.UNREADABLE_CHECKPOINT})


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """Options of a run on this machine beside the fields of its configuration.

    Attributes:
      workdir: folder of the run; by default a new one, runs/CONFIG__SEED__UTC-TIME.
      resume: whether to resume from the newest checkpoint in the folder: if there is one (auto),
        not at all (never), or it is an error if there is none (must).
      init_from: folder of another run, whose newest parameters a new run begins with, or the best
        if only these are saved; its checkpoints/best for those. Where there is something to resume
        from, they are not looked at.
      checkpoint_replay: save the replay with every checkpoint, same as `--checkpoint.replay`.
      bind: address to serve on, same as `--serving.bind`; by default a unix socket of its own.
      token_file: file with the token that env servers must show, same as `--serving.token-file`; by
        default its own env servers are given one, if there is a port.
      allow: what CONFIG may name if it is the config.json of a run: folders of Python files, and
        factories of environments, package.module:factory.
      env_servers: number of env-server processes; by default `--launch.env-servers`.
      envs_per_server: environments of each; all but the evaluation slots then train; by default as
        `--launch.envs-per-server`.
      groups: groups of environments that an env server steps interleaved; by default as
        `--launch.groups`.
      hosts: how many learner processes share the run, as several machines would, and its env
        servers; on one machine that is for trying it out. What others than the first say is in
        logs/learner_N.log of the run's folder.
    """

    workdir: Path | None = None
    env_servers: int | None = None
    envs_per_server: int | None = None
    groups: int | None = None
    hosts: int = 1


def run(argv: Sequence[str]) -> int:
    """Trains until the run is over; returns its exit code."""
    options, config = parse(TrainOptions, argv, prog=PROG)
    extras.require("learner")
    if argv[0].endswith(".json"):
        config_json.require_factories((config.environment.id, *config.environment.wrappers))
    config, planned = plan(options, config)
    _name_passed_over(config)
    workdir = options.workdir or _new_workdir(argv[0], config)
    check_free(workdir)
    is_new = not workdir.exists()
    # From here on there is something to clean up after.
    signals = LateReceiver()
    with forward_signals(signals):
        code, is_unlogged = _supervised(options, config, planned, workdir, argv, signals)
        if is_new and is_unlogged:
            remove_refused(workdir)
    return code


def plan(options: TrainOptions, config: Config) -> tuple[Config, env_servers.Fleet]:
    """The run's whole configuration, and its env servers. Raises ConfigError if it cannot work."""
    config, planned = env_servers.plan(
        options.apply(config),
        env_servers=options.env_servers,
        envs_per_server=options.envs_per_server,
        groups=options.groups,
    )
    if config.serving.certificate:
        raise ConfigError(
            "serving.certificate: the env servers of `seedrl train` are of this machine, and speak "
            "no TLS; start the learner with `python -m learner`"
        )
    check(dataclasses.replace(config, serving=_with_token(config.serving, Path("token"))))
    return config, planned


def _supervised(
    options: TrainOptions,
    config: Config,
    planned: env_servers.Fleet,
    workdir: Path,
    argv: Sequence[str],
    signals: LateReceiver,
) -> tuple[int, bool]:
    """The exit code of the run; whether nobody needs its folder, if it has not begun."""
    command = shlex.join([*PROG.split(), *argv])
    with contextlib.ExitStack() as stack:
        own_folder = stack.enter_context(env_servers.private_folder())
        serving = _serving(config.serving, own_folder, argv, hosts=options.hosts)
        stop_reason = own_folder / "stop_reason"
        words = [
            *("--workdir", str(workdir), "--resume", options.resume),
            *(() if options.init_from is None else ("--init-from", str(options.init_from))),
            *("--name", Path(argv[0]).stem),
            *("--stop-reason", str(stop_reason)),
            *_allowing(config_modules.import_folders()),
        ]
        processes = _of_hosts(
            dataclasses.replace(config, serving=serving),
            env_servers.of_hosts(planned, serving, options.hosts),
            own_folder,
            workdir / LOGS,
            words,
            user_command=command,
        )
        supervisor = Supervisor(
            processes.env_servers,
            learner=processes.learners[0],
            restarts=config.launch.restarts,
            give_reason=functools.partial(_give, stop_reason),
            resume_command=shlex.join(resuming(command, workdir)),
            start_command=command,
        )
        stack.enter_context(tolerating_lost_output())
        # One that ends of an error ends the first learner too, if they have met.
        others = OtherHosts(processes.learners[1:], lambda: supervisor.signal(signal.SIGTERM))
        stack.enter_context(others)
        stack.enter_context(supervisor)
        signals.deliver_to(supervisor.signal)
        code = supervisor.wait() or others.code
        # What a learner has to say is on the terminal; of an env server's log only the last line.
        is_said = code in _REFUSED or supervisor.is_interrupted
        return code, is_said and not supervisor.has_failed_env_server


def _name_passed_over(config: Config) -> None:
    factories = (config.environment.id, *config.environment.wrappers)
    names = [name.partition(":")[0] for name in factories if ":" in name]
    for module in config_modules.passed_over(names):
        text = f"imports {module} from beside the config; the current folder has one of that name"
        print(f"{PROG}: {text}, which is not used", file=sys.stderr)


def _new_workdir(config_name: str, config: Config) -> Path:
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return Path("runs") / f"{Path(config_name).stem}__{config.seed}__{now}"


def _chooses_address(argv: Sequence[str]) -> bool:
    return any(word.split("=")[0] in ("--bind", "--serving.bind") for word in argv)


def _serving(
    serving: ServingConfig, own_folder: Path, argv: Sequence[str], *, hosts: int
) -> ServingConfig:
    """Where the learner serves, and the token that its env servers are given, if they need one.

    Several learners meet at a port, which every user of this machine reaches: so they need one.
    """
    own = own_folder / "token"
    if _chooses_address(argv):
        serving = dataclasses.replace(serving, bind=_reachable(serving.bind))
        given = _with_token(serving, own)
    else:
        serving = env_servers.on_private_socket(serving, f"unix:{own_folder}/learner")
        given = serving if hosts == 1 else dataclasses.replace(serving, token_file=str(own))
    if given is not serving:
        own.touch(mode=0o600)
        own.write_text(secrets.token_hex(32))
    return given


def _with_token(serving: ServingConfig, path: Path) -> ServingConfig:
    """With the token in `path` if a port is served that needs one, and none is given."""
    is_port = bool(serving.bind) and not serving.bind.startswith("unix:")
    if not is_port or serving.insecure or serving.token_file:
        return serving
    return dataclasses.replace(serving, token_file=str(path))


def _reachable(bind: str) -> str:
    if bind.endswith(":0") or not bind:
        raise ConfigError(
            f"serving.bind: expected a port other than 0, which the env servers know, got {bind!r}"
        )
    return bind


def _give(path: Path, reason: str) -> None:
    with contextlib.suppress(OSError):  # a full disk: the learner names the signal
        path.write_text(reason)


def _allowing(folders: Sequence[str]) -> list[str]:
    """What the learner's configuration may name: what this process has imported for it."""
    return ["--allow", *folders] if folders else []


class _Processes(NamedTuple):
    """The learners of a run, one for each host, and all env servers."""

    learners: list[Command]
    env_servers: list[Command]


def _of_hosts(
    config: Config,
    fleets: Sequence[env_servers.HostFleet],
    own_folder: Path,
    logs: Path,
    words: Sequence[str],
    *,
    user_command: str,
) -> _Processes:
    """The processes of the run; `words` are those of each learner."""
    found, place = _Processes([], []), []
    if len(fleets) > 1:
        if not config.serving.bind.startswith("unix:"):
            raise ConfigError("--hosts: each has a socket of its own; expected no --bind")
        place = ["--hosts", str(len(fleets)), "--coordinator", _free_address(), "--host-index"]
    for index, (fleet, first) in enumerate(fleets):
        bind = f"{config.serving.bind}{index}" if index else config.serving.bind
        own = dataclasses.replace(config, serving=dataclasses.replace(config.serving, bind=bind))
        servers = env_servers.commands(
            fleet,
            config.environment,
            address=bind,
            logs=logs,
            token_file=config.serving.token_file,
            first=first,
        )
        learner = _learner(
            own,
            own_folder / (f"config{index}.json" if index else "config.json"),
            [
                *words,
                "--env-servers",
                str(fleet.num_servers),
                *place,
                *([str(index)] * bool(place)),
            ],
            user_command=user_command,
        )
        if index:
            learner = learner._replace(name=f"learner {index}", log=logs / f"learner_{index}.log")
        found.learners.append(learner)
        found.env_servers.extend(servers)
    return found


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def _learner(
    config: Config, config_path: Path, options: Sequence[str], *, user_command: str
) -> Command:
    """A learner's command line; writes its configuration to `config_path`."""
    config_path.write_text(config_json.to_json(config))
    words = [str(config_path), *options, "--user-command", user_command]
    return Command(
        name="learner",
        arguments=(sys.executable, "-P", "-m", "learner", *words),
        environment=env_servers.child_environment(),
        log=None,
        ending=signal.SIGUSR1,
        grace_seconds=config.logging.grace_seconds,
    )
