"""A small run that Python code starts: it is followed, stopped and played; then its folder is data.

Hostile folders, made from it, against all that read one.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import seedrl
from learner.checkpoints.restoring import require_fit
from learner.checkpoints.run_folder import RunFolder
from learner.cli.arguments import parse
from learner.cli.evaluate import PlayOptions, config_of
from learner.cli.main import main
from learner.cli.train import TrainOptions
from learner.extras.watch.feed import Feed
from learner.report.events import Event
from learner.report.metric_table import METRICS, RECORDS
from learner.report.metric_table import lines as metric_lines
from learner.report.status import Status
from learner.serving.ledger import ACCOUNTS
from seedrl import checkpoints, config_io, policy
from seedrl.config import check
from seedrl.errors import UserError
from seedrl.exit_codes import ExitCode
from seedrl.run import Run, leaves_of, words_of
from tests.gated import all_but
from tests.patience import SECONDS
from tests.system.processes import ROOT

_SECRET = "secret-of-the-user"
_MOST_MEMORY = 2**30
# Python runs it first in each program: a line for each time that the user's secret is opened.
_HOOK = """
import atexit, os, sys, threading
# By thread, the path of its last `open` if that led to the secret. With an opener, which has the
# flags that count, a second event follows.
opened = {}
def report(path):
    sys.stderr.write(f"Traceback: opened {path}")
def seen(event, arguments):
    if event != "open" or not isinstance(arguments[0], str):
        return
    path, _, flags = arguments
    own, is_safe = threading.get_ident(), flags & os.O_NOFOLLOW
    before = opened.pop(own, None)
    if before is not None and not (is_safe and path == before):
        report(before)
    if not is_safe and os.path.realpath(path) == os.environ["SECRET"]:
        opened[own] = path
sys.addaudithook(seen)
atexit.register(lambda: [report(path) for path in opened.values()])
"""
# One after the other in one process, which imports jax once. The last line has their exit codes.
_COMMANDS = """
import json, sys
from learner.cli.main import main
codes = [main(words) for words in json.loads(sys.argv[1])]
print(json.dumps(codes), flush=True)
"""
# As `SMALLEST` of the system tests, whose programs are compiled already.
TINY: dict[str, Any] = {
    "env_servers": 1,
    "serving": {"training_slots": 1, "evaluation_slots": 1},
    "agent": {
        "burn_in": 2,
        "unroll": 12,
        "n_steps": 2,
        "stride": 8,
        "target_update_interval": 7,
        "network": {
            "torso_sizes": (8,),
            "core": "none",
            "head_sizes": [8],
        },
    },
    "replay": {"min_steps": 64, "capacity_steps": 256},
    "learning.batch_sequences": 4,
    "evaluation": {"target_return": None, "episodes": 2, "interval_steps": 1},
    "logging": {"interval_seconds": 0.25, "learning_curve": False},
    "checkpoint": {"replay": True},
}
DOCUMENTED = {line for metric in METRICS for line in metric_lines(metric)} | {
    f"ledger/{account}" for account in ACCOUNTS
}
RARE = {line for metric in METRICS if metric.is_rare for line in metric_lines(metric)}
ON_EVERY_LINE = {"kind", "time_seconds", "elapsed_seconds"}
# With these an update was reported, and an episode.
LAST_TO_COME = {"loss", "length/training"}
# A configuration of another process's, that trains until it is stopped.
PROGRAM = f"""
import pathlib, seedrl
run = seedrl.train("cartpole_r2d2", workdir="run", **{TINY!r})
for metrics in run:
    if metrics.get("updates", 0) > 0:
        break
print("trains", flush=True)
"""


def _reason(workdir: Path) -> str:
    reason: str = json.loads((workdir / "status.json").read_text())["reason"]
    return reason


class Followed(NamedTuple):
    """A run, and the lines that came while it was followed."""

    run: Run
    lines: list[dict[str, Any]]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """It was stopped once an update, an episode and an evaluation were reported."""
    lines = []
    workdir = tmp_path_factory.mktemp("small") / "run"
    with seedrl.train("cartpole_r2d2", workdir=workdir, **TINY) as run:
        for metrics in run:
            lines.append(metrics)
            seen = {name for each in lines for name in each}
            if seen >= LAST_TO_COME and any(each["kind"] == "evaluation" for each in lines):
                break
    return Followed(run, lines)


@pytest.mark.slow
def test_a_run_is_followed_stopped_and_played(followed: Followed) -> None:
    run, lines = followed
    assert lines[0]["kind"] == "session"
    assert run.wait() == ExitCode.OK and _reason(run.workdir).startswith("stopped by SIGTERM")
    # All lines, those that came while it was saved too, and a loop over a run that has ended ends.
    assert run.metrics[: len(lines)] == lines
    assert [*run] == run.metrics and run.metrics[-1]["kind"] == "ledger"
    played = seedrl.load_policy(run.workdir)
    assert played(np.zeros(4, np.float32), played.initial_carry())[0] in (0, 1)
    config = config_io.load(run.workdir / "config.json")
    assert config.agent.network.torso_sizes == (8,)
    assert config.learning.batch_sequences == 4 and config.evaluation.target_return is None


def _names(followed: Followed, kind: str) -> set[str]:
    """Of the fields of all lines of a kind."""
    return {name for line in followed.run.metrics if line["kind"] == kind for name in line}


@pytest.mark.slow
def test_a_run_emits_what_is_documented_and_nothing_else(followed: Followed) -> None:
    emitted = _names(followed, "metrics") - ON_EVERY_LINE
    documented = DOCUMENTED - ON_EVERY_LINE
    assert emitted - documented == set(), "emitted and not documented"
    assert documented - emitted - RARE == set(), "documented and never emitted"
    for kind, (_, described) in RECORDS.items():
        fields = set(ACCOUNTS) if kind == "ledger" else set(described)
        assert _names(followed, kind) == fields | ON_EVERY_LINE


@pytest.mark.slow
def test_a_run_has_said_what_happened_to_it(followed: Followed) -> None:
    workdir = followed.run.workdir
    events = [json.loads(line) for line in (workdir / "events.jsonl").read_text().splitlines()]
    told = [event["kind"] for event in events]
    story = ["started", "server_joined", "learning", "ended"]
    assert [told.index(kind) for kind in story] == sorted(told.index(kind) for kind in story)
    assert {*story, "evaluation", "saved"} <= set(told)
    for event in events:
        assert event.keys() == {field.name for field in dataclasses.fields(Event)}
    status = json.loads((workdir / "status.json").read_text())
    assert status.keys() == {field.name for field in dataclasses.fields(Status)}
    assert (status["state"], status["reason"]) == ("finished", "stopped by SIGTERM")
    assert status["best_evaluation"]["mean_return"] >= status["last_evaluation"]["mean_return"]
    assert [server["environments"] > 0 for server in status["env_servers"]] == [True]


@pytest.mark.slow
def test_the_cells_of_the_notebook_follow_and_play_a_run(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: str, **options: Any) -> Run:
        words = [word for item in leaves_of(options) for word in words_of(*item)]
        check(parse(TrainOptions, [config, *words], prog="seedrl train")[1])
        return followed.run

    monkeypatch.setattr(seedrl, "train", train)
    notebook = json.loads((ROOT / "docs" / "examples" / "train.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["curve"] and names["total"] >= 8


@pytest.fixture
def run(followed: Followed) -> Path:
    """Its folder."""
    return followed.run.workdir


@pytest.mark.gate
@pytest.mark.parametrize("interrupts", [True, False])
def test_a_program_that_is_interrupted_or_ends_leaves_a_saved_run(
    tmp_path: Path, interrupts: bool
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + "run.wait()\n" * interrupts],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None and program.stdout.readline() == "trains\n"
        if interrupts:
            program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=SECONDS)
    assert program.returncode == (-signal.SIGINT if interrupts else 0), said
    assert _reason(tmp_path / "run").startswith("stopped by SIGTERM")
    assert any((tmp_path / "run" / "checkpoints").iterdir())


def _checkpoint(run: Path) -> Path:
    return max(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())


def _seal(path: Path, **changed: Any) -> None:
    """Writes sums that are right, as anybody can."""
    files = {}
    for file in sorted(path.rglob("*")):
        if file.is_file() and not file.is_symlink() and file.name != "sums.json":
            content = file.read_bytes()
            name = file.relative_to(path).as_posix()
            files[name] = [len(content), hashlib.sha256(content).hexdigest()]
    document = {"format": 3, "step": int(path.name), "files": files} | changed
    text = json.dumps(document, sort_keys=True)
    document["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (path / "sums.json").write_text(json.dumps(document))


Kind = Callable[[Path], object]


def _with_config(**changed: Any) -> Kind:
    """Fields of config.json, `a__b` for `a.b`."""

    def make(run: Path) -> None:
        document = json.loads((run / "config.json").read_text())
        for name, value in changed.items():
            tree, parts = document["config"], name.split("__")
            for part in parts[:-1]:
                tree = tree[part]
            tree[parts[-1]] = value
        (run / "config.json").write_text(json.dumps(document))

    return make


def _with_meta(**changed: Any) -> Kind:
    """Fields of meta.json; None takes one away. NaN and more are written as they are."""

    def make(run: Path) -> None:
        path = _checkpoint(run)
        meta = json.loads((path / "meta.json").read_text())
        for name, value in changed.items():
            if value is None:
                del meta[name]
            elif isinstance(value, dict):
                meta[name] |= value
            else:
                meta[name] = value
        (path / "meta.json").write_text(json.dumps(meta))
        _seal(path)

    return make


def _with_text(name: str, text: str) -> Kind:
    """Another content of a file; the checkpoint's are sealed."""

    def make(run: Path) -> None:
        is_of_checkpoint = name.startswith("CHECKPOINT/")
        path = _checkpoint(run) / name[11:] if is_of_checkpoint else run / name
        path.write_text(text)
        if is_of_checkpoint and path.name != "sums.json":
            _seal(_checkpoint(run))

    return make


def _replaced(name: str, by: str) -> Kind:
    def make(run: Path) -> None:
        path = _checkpoint(run) / name[11:] if name.startswith("CHECKPOINT") else run / name
        if path.is_dir():
            path.rename(run.parent / "outside")
        else:
            path.unlink(missing_ok=True)
        if by == "fifo":
            os.mkfifo(path)
        elif by == "folder":
            path.mkdir()
        elif by == "device":
            path.symlink_to("/dev/zero")
        elif by == "loop":
            path.symlink_to(path)
        else:
            path.symlink_to(run.parent / ("outside" if by == "moved" else by))

    return make


def _linked(name: str, *, to: str = "secret") -> Kind:
    """A link out of the folder where a program writes."""

    def make(run: Path) -> None:
        (run.parent / "outside").mkdir(exist_ok=True)
        path = run / name
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(run.parent / to)

    return make


def _with_status(**changed: Any) -> Kind:
    def make(run: Path) -> None:
        status = json.loads((run / "status.json").read_text())
        (run / "status.json").write_text(json.dumps(status | changed))

    return make


def _without_status(run: Path) -> None:
    line = {"kind": "evaluation", "env_steps": 1, "ended_env_steps": 10**400, "updates": 1}
    line |= {"mean_return": 1.0, "episodes": 1, "elapsed_seconds": 1.0}
    (run / "status.json").unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def _sparse(name: str) -> Kind:
    """A file of 8 GB, of which no byte is on disk."""

    def make(run: Path) -> None:
        with (run / name).open("ab") as file:
            file.truncate(2**33)

    return make


def _with_extra(**changed: Any) -> Kind:
    """Arrays of the saved replay, by the end of their names with `_` for dots."""

    def make(run: Path) -> None:
        path = _checkpoint(run)
        names = json.loads((path / "extra" / "names.json").read_text())
        for suffix, change in changed.items():
            (name,) = (n for n in names if n == f"replay.{suffix}")
            array = np.load(path / "extra" / names[name][0])
            np.save(path / "extra" / names[name][0], change(array))
        _seal(path)

    return make


_DEEP, _NUMBER = "[" * 200_000, "1" * 10_000
KINDS: dict[str, Kind] = {
    "as it was": lambda run: None,
    # Links, FIFOs, devices and folders in place of files.
    **{
        f"{name}: {by}": _replaced(name, by)
        for name in ("config.json", "metrics.jsonl", "CHECKPOINT/meta.json", "CHECKPOINT/sums.json")
        for by in ("fifo", "device", "folder", "secret")
    },
    "config.json: link to code": _linked("config.json", to="run/test_evil.py"),
    "status.json: fifo": _replaced("status.json", "fifo"),
    "events.jsonl: loop": _replaced("events.jsonl", "loop"),
    "final_score.json: secret": _replaced("final_score.json", "secret"),
    "lock: fifo": _replaced(".lock", "fifo"),
    "checkpoints: link": _replaced("checkpoints", "moved"),
    "checkpoint: link": _replaced("CHECKPOINT", "moved"),
    "params: link": _replaced("CHECKPOINT/params", "moved"),
    "params: loop": _replaced("CHECKPOINT/params", "loop"),
    "extra: link": _replaced("CHECKPOINT/extra", "moved"),
    # Links where a program writes.
    **{
        f"{name}: link": _linked(name)
        for name in (
            *(".lock", "events.jsonl", "command.txt", "status.json", ".status.json.new"),
            *("policy.jax", ".policy.jax.new", "logs/env_server_0.log"),
            *("learning_curve.png", "videos/episode_000.mp4.partial", ".final_score.json.new"),
        )
    },
    **{
        f"{name}: link": _linked(name, to="outside")
        for name in ("tb", "logs", "evaluation_logs", "videos")
    },
    # Sizes.
    **{f"{name}: 8 GB": _sparse(name) for name in ("config.json", "metrics.jsonl", "status.json")},
    # Deep and large JSON.
    **{
        f"{name}: deep": _with_text(name, _DEEP)
        for name in ("config.json", "metrics.jsonl", "CHECKPOINT/meta.json", "CHECKPOINT/sums.json")
    },
    "meta.json: a number of 10,000 digits": _with_text("CHECKPOINT/meta.json", _NUMBER),
    "config.json: no text": lambda run: (run / "config.json").write_bytes(b"\xff\xfe\x00") and None,
    # Types and fields of the records.
    "meta: config missing": _with_meta(config=None),
    "meta: spec missing": _with_meta(env_spec=None),
    "status: steps 10^400": _with_status(env_steps=10**400, updates=10**400),
    "status: a list of texts": _with_status(config=["a"], reason={"b": 1}, state=[2]),
    "status: escapes and formulas": _with_status(config="$\\frac{$\x1b]0;x\x07", host=3),
    "no status, rounds of 10^400 steps": _without_status,
    "final score: texts": _with_text(
        "final_score.json", '{"mean": "a", "episodes": "b", "updates": "c", "exploration": "d"}'
    ),
    "meta: steps 10^400": _with_meta(env_steps=10**400),
    "meta: limiter NaN": _with_meta(limiter={"env_steps": float("nan")}),
    "meta: limiter 10^15": _with_meta(limiter={"env_steps": 10**15}),
    "meta: totals list": _with_meta(totals=[1]),
    # Classes, factories, sizes that a config names.
    "own module": _with_config(agent__type="test_evil:X"),
    "own factory": _with_config(environment__id="test_evil:X"),
    "steps 10^400": _with_config(learning__total_steps=10**400),
    "steps infinite": _with_config(learning__total_steps=float("inf")),
    "target 10^400": _with_config(evaluation__target_return=10**400),
    "a very large network": _with_config(agent__network__core_size=10**12),
    # Wrong replays.
    "links outside": _with_extra(next=lambda a: a + 10**6),
    "weights NaN": _with_extra(sampling_weight=lambda a: a * np.nan),
    "weights of none": _with_extra(sampling_weight=lambda a: a[:, :0]),
}


def _resume(folder: Path) -> None:
    opened = RunFolder(folder)
    try:
        if (found := opened.checkpoint("auto")) is not None:
            require_fit(found, config_io.load(folder / "config.json"))
    finally:
        opened.close()


def _feed(folder: Path) -> None:
    feed = Feed(folder, None)
    for _ in range(3):
        feed._read()


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise AssertionError(f"no end within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Every thirtieth kind each time, all of them as a gate: one kind takes a second.
_CASES = all_but([*KINDS][30::30], KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", _CASES)
def test_a_hostile_folder_is_data(
    run: Path,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    _plant(tmp_path)
    KINDS[kind](folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(policy.Policy, "export", lambda self: b"")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out = str(tmp_path / "out")
    for words in (
        ["runs", str(tmp_path)],
        ["compare", str(folder), "--output", f"{out}.c.png", "--force"],
        ["checkpoints", str(folder)],
        ["digest", str(folder)],
        ["export", str(folder)],
    ):
        with _within(SECONDS):
            assert main(words) in (0, 2, 74), words
    for read in (
        _resume,
        _feed,
        lambda path: config_of(PlayOptions(workdir=path, episodes=1)),
        lambda path: checkpoints.choose(path, parts=checkpoints.PARAMS),
    ):
        with _within(SECONDS), contextlib.suppress(UserError):
            read(folder)
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out
    _require_harmless(tmp_path, shown.out + shown.err)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < _MOST_MEMORY


# A kind takes up to half a minute: it starts jax and env servers.
@pytest.mark.gate
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_programs_that_play_or_train_a_hostile_folder_take_it_as_data(
    run: Path, tmp_path: Path, kind: Kind
) -> None:
    folder, hook = tmp_path / "run", tmp_path / "hook"
    shutil.copytree(run, folder)
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(_HOOK)
    _plant(tmp_path)
    kind(folder)
    present = {path for path in tmp_path.rglob("*")}
    steps = json.loads((run / "status.json").read_text())["env_steps"] + 100
    variables = {"PYTHONPATH": str(hook), "SECRET": str(tmp_path / "secret")}
    variables["PYTHONDONTWRITEBYTECODE"] = "1"  # the hook's bytecode is a file outside
    commands = (
        ["evaluate", str(folder), "--episodes", "1", "--save"],
        ["record", str(folder), "--episodes", "1", "--max-episode-steps", "20"],
        ["resume", str(folder), "--learning.total-steps", str(steps)],
    )
    program = subprocess.Popen(
        # As the command is installed: not from the current folder.
        [sys.executable, "-P", "-c", _COMMANDS, json.dumps(commands)],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **variables},
        cwd=folder,
        umask=0o022,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        shown, _ = program.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        raise
    assert program.returncode == 0, shown
    _require_harmless(tmp_path, shown)
    codes = json.loads(shown.splitlines()[-1])
    assert len(codes) == len(commands) and set(codes) <= {0, 2, 74}, shown
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < _MOST_MEMORY
    made = {path for path in tmp_path.rglob("*")} - present
    assert all(path.is_relative_to(folder) for path in made)
    shared = [path for path in made if not path.is_symlink() and path.stat().st_mode & 0o077]
    assert not shared


def _plant(place: Path) -> None:
    """What no program may read, change or run."""
    (place / "secret").write_text(json.dumps({_SECRET: 1}))
    for name in ("test_evil", "sitecustomize", "random"):
        (place / "run" / f"{name}.py").write_text(
            f"open({str(place / 'ran')!r}, 'w')\nclass X: pass\n"
        )


def _require_harmless(place: Path, shown: str) -> None:
    assert _SECRET not in shown and "Traceback" not in shown
    assert not (place / "ran").exists()
    assert (place / "secret").read_text() == json.dumps({_SECRET: 1})
