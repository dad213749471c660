"""`seedrl record RUN`: films episodes of a run's policy."""

import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from learner.cli.arguments import parse_flags
from learner.cli.saved_runs.playing import PlayOptions, config_of, make_logs, play
from learner.launch import env_servers
from learner.launch.child import Command
from learner.launch.supervisor import Supervisor
from seedrl.config import Config
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras

PROG = "seedrl record"

_FILMS = "episode_*.mp4"


@dataclass(frozen=True, kw_only=True)
class RecordOptions(PlayOptions):
    """Films episodes of a run's policy, one file each, as the environment draws itself with
    render_mode rgb_array; of an ALE game, what the agent sees.

    Attributes:
      workdir: folder of the run.
      episodes: number of episodes to film.
      step: play the checkpoint of that many updates instead of the newest.
      best: play the checkpoint that scored highest in the evaluations of the run.
      seed: of environments and random actions; by default the run's.
      greedy: take greedy actions only; by default the agent explores as when it is evaluated in
        training.
      allow: code that the run may name: folders of Python files, and factories of environments,
        package.module:factory; by default only what is installed, and environments by their id.
      output: folder of the films; by default videos/ in the folder of the run. Films that are there
        are written over.
    """

    episodes: int = 3
    output: Path | None = None


def run(argv: Sequence[str]) -> int:
    """Films, and prints the returns and where the films are; returns the exit code.

    The env server is not started again: which of its films shows which episode would be a guess.
    """
    options = parse_flags(RecordOptions, argv, prog=PROG)
    extras.require("learner")
    extras.require("video")
    config = config_of(options)
    films = (options.output or options.workdir / "videos").absolute()
    with env_servers.socket_address() as address, _own_folder(films) as folder:
        logs = make_logs(options.workdir, "record")
        command = _command(config, address, logs=logs, films=folder)
        serving = dataclasses.replace(
            env_servers.on_private_socket(config.serving, address),
            training_slots=1,
            evaluation_slots=0,
        )
        supervisor = Supervisor([command], restarts=0)
        config = dataclasses.replace(config, serving=serving)
        evaluation = play(supervisor, config, options, logs=logs)
        written = {film.name for film in folder.glob(_FILMS)}
    if not isinstance(evaluation, tuple):
        _say_few(written, options.episodes, films)
        return evaluation
    for number, episode_return in enumerate(evaluation.returns):
        if (name := f"episode_{number:03}.mp4") in written:
            print(f"{films / name}: return {episode_return:g}")
    if len(written) < len(evaluation.returns):
        _say_few(written, options.episodes, films)
        return ExitCode.FAILED_FILMS
    return ExitCode.OK


@contextlib.contextmanager
def _own_folder(films: Path) -> Iterator[Path]:
    """A new folder below `films`, whose films are moved there at the end, however that comes.

    So what is found in it has been written now, and half-written films go with it.
    """
    try:
        films.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output: cannot make {films}: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix=".filming_", dir=films) as name:
        folder = Path(name)
        try:
            yield folder
        finally:
            for film in folder.glob(_FILMS):
                film.replace(films / film.name)


def _say_few(written: set[str], asked: int, films: Path) -> None:
    names = f" in {films}: {', '.join(sorted(written))}" if written else ""
    print(f"{PROG}: {len(written)} of {asked} films were written{names}", file=sys.stderr)


def _command(config: Config, address: str, *, logs: Path, films: Path) -> Command:
    """Of an env server with one environment, which it films."""
    alone = env_servers.Fleet(1, 1, 1, config.launch.local_link)
    (command,) = env_servers.commands(alone, config.environment, address=address, logs=logs)
    arguments = (*command.arguments, "--films", str(films))
    return command._replace(arguments=arguments, name="the env server that films")
