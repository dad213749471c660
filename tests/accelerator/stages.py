"""What there is to do on a day with an accelerator, and how long each of it may take."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["install", "facts", "tests", "bench", "training"]

BENCHMARKS = ("wire", "pipeline")
DEVELOPERS_BENCHMARKS = ("replay", "inference", "learner")
# Those that tell something of another machine and another jax, and need neither an index, nor
# tools that are not carried, nor hours; one stage each, so that one that hangs is one that hangs.
TESTS = {
    "tests_equations": ("tests/seedrl/rl", "tests/seedrl/replay", "tests/seedrl/networks"),
    "tests_agents": ("tests/seedrl/agents", "tests/seedrl/test_policy.py"),
    "tests_storage": (
        "tests/seedrl/test_checkpoints.py",
        "tests/seedrl/wire",
        "tests/learner/saving",
    ),
    "tests_learning": ("tests/learner/learning", "tests/learner/acting", "tests/learner/threads"),
    "tests_serving": ("tests/learner/serving", "tests/learner/session"),
    "tests_env_servers": ("tests/envs_server",),
    "tests_system": ("tests/system/test_experience.py", "tests/system/test_balance.py"),
}
# Programs of one device, whose results are compared with others' or with numpy's.
ON_ACCELERATOR = (
    "tests/seedrl/rl",
    "tests/seedrl/networks",
    "tests/seedrl/replay/test_replay.py",
    "tests/seedrl/agents/test_r2d2.py",
)


class Profile(NamedTuple):
    """How much of everything.

    Attributes:
      tests: of TESTS, the stages.
      tests_seconds, bench_seconds: limit of one such stage.
      bench: flags of `seedrl bench`.
      piece_seconds: of training, at most; a call that has less left trains as long as that.
      pieces: of each training.
      training: flags of `seedrl train`, by configuration.
    """

    tests: tuple[str, ...]
    tests_seconds: float
    bench_seconds: float
    bench: tuple[str, ...]
    piece_seconds: float
    pieces: int
    training: Mapping[str, tuple[str, ...]]


DAY = Profile(
    tests=tuple(TESTS),
    tests_seconds=240.0,
    bench_seconds=120.0,
    bench=("--seconds", "0.5", "--rounds", "5"),
    piece_seconds=540.0,
    pieces=100,
    training={"pong_r2d2": (), "atari_r2d2": ()},
)
# Dense layers: convolutions take a busy CPU minutes to compile.
_SMALL = (
    *(
        "--agent.network.torso",
        "mlp",
        "--agent.network.torso-sizes",
        "32",
        "--agent.network.core-size",
        "32",
    ),
    *("--agent.network.head-sizes", "32", "--serving.training-slots", "8"),
    *("--serving.evaluation-slots", "2", "--replay.capacity-steps", "8000"),
    *("--replay.min-steps", "1600", "--learning.batch-sequences", "4", "--env-servers", "2"),
    *("--evaluation.episodes", "2"),
)
REHEARSAL = DAY._replace(
    tests=("tests_equations", "tests_env_servers"),
    bench=("--seconds", "0.05", "--rounds", "2"),
    piece_seconds=120.0,
    pieces=2,
    training={"pong_r2d2": _SMALL, "atari_r2d2": _SMALL},
)


class Stage(NamedTuple):
    """One thing to do.

    Attributes:
      name: what it is called.
      kind: how its outcome is read.
      command: words of a process.
      limit_seconds: it gets SIGTERM then. Training saves, and a later piece goes on.
      least_seconds: with less left it is not worth beginning.
      pieces: how often it is run, at most.
      variables: of its environment, beside those of this process.
      result: the file or folder that it leaves, if its outcome is read there.
    """

    name: str
    kind: Kind
    command: tuple[str, ...]
    limit_seconds: float
    least_seconds: float
    pieces: int = 1
    variables: Mapping[str, str] = {}
    result: Path | None = None


def stages(profile: Profile, folder: Path, wheels: Path) -> list[Stage]:
    """All of them, in order. `folder`: what they keep is there."""
    python = str(folder / "venv" / "bin" / "python")
    install = (sys.executable, "-m", "tests.accelerator.install", str(folder), str(wheels))
    facts = (python, "-m", "tests.accelerator.facts", str(folder / "facts.json"))
    every = [
        Stage("install", "install", install, 240.0, 20.0),
        Stage("facts", "facts", facts, 120.0, 20.0, result=folder / "facts.json"),
    ]
    pytest = (python, "-m", "pytest", "-q", "-m", "not gate", "-p", "no:cacheprovider")
    for name in profile.tests:
        command = (*pytest, "-n", "auto", "--dist", "loadfile", *TESTS[name])
        variables = {"JAX_PLATFORMS": "cpu"}
        every.append(Stage(name, "tests", command, profile.tests_seconds, 30.0, 1, variables))
    # In one process: it has the accelerator's memory to itself.
    exact = {"XLA_FLAGS": "", "JAX_DEFAULT_MATMUL_PRECISION": "highest", "JAX_PLATFORMS": ""}
    command = (*pytest, "-n", "0", *ON_ACCELERATOR)
    limit = profile.tests_seconds
    every.append(Stage("tests_on_accelerator", "tests", command, limit, 30.0, 1, exact))
    seedrl = (python, "-m", "learner.cli.main")
    for name in (*BENCHMARKS, *DEVELOPERS_BENCHMARKS):
        result = folder / f"bench_{name}.json"
        program = (*seedrl, "bench") if name in BENCHMARKS else (python, "-m", "tests.benchmarks")
        command = (*program, name, *profile.bench, "--json", str(result))
        bench = Stage(f"bench_{name}", "bench", command, profile.bench_seconds, 40.0, result=result)
        every.append(bench)
    for config, flags in profile.training.items():
        workdir = folder / config
        command = (*seedrl, "train", config, "--workdir", str(workdir), *_SAVES, *flags)
        limit = profile.piece_seconds
        training = Stage(config, "training", command, limit, 60.0, profile.pieces, {}, workdir)
        every.append(training)
    return every


# A machine that is taken away costs a minute.
_SAVES = ("--resume", "auto", "--checkpoint.interval-seconds", "60", "--logging.no-learning-curve")


def named(every: Sequence[Stage], names: Sequence[str]) -> list[Stage]:
    """Those of these names, in their order; all if there are none."""
    if not names:
        return list(every)
    return sorted(
        (stage for stage in every if stage.name in names), key=lambda s: names.index(s.name)
    )
