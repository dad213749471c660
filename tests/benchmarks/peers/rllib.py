"""CartPole against RLlib's IMPALA and APPO: environment steps a second, acting and learning.

Ours is the system of `seedrl bench pipeline` at replay ratio 1; theirs learns once from what it
samples, as far as its learner keeps up. Torso, core and widths are the same.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from learner.extras.bench import pipeline
from learner.extras.bench.measuring import Pace, Result, apart, interleave
from learner.extras.bench.system import System
from learner.extras.bench.workloads import Workload
from tests.benchmarks.peers import virtual_environment
from tests.benchmarks.peers.peer_process import PeerProcess

_PATIENCE_SECONDS = 180.0
_COMMAND = {"envs_per_runner": 128, "batch": 6_400, "lstm": True}


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """A result for each of the two algorithms."""
    interpreter = virtual_environment.python("rllib", venvs)
    workload = pipeline.cartpole()
    yield from apart(workload.config, _results, workload, interpreter, pace)


def _results(workload: Workload, interpreter: Path, pace: Pace) -> Iterator[Result]:
    with System(workload.config) as system:
        system.run_until(lambda: system.parts.learning.updates > 0)

        def ours() -> float:
            interval = system.run(pace.seconds, by_updates=True)
            return interval.steps / interval.seconds

        for algorithm in ("IMPALA", "APPO"):
            measured = _measured(ours, interpreter, algorithm, pace)
            yield Result(
                name=f"{workload.name}: acting and learning, beside RLlib {algorithm}",
                unit="steps/s",
                limit_name=f"RLlib {algorithm}",
                ours=measured["ours"],
                limits=measured["theirs"],
                conditions=pipeline.described(workload, "learning"),
            )


def _measured(
    ours: Callable[[], float], interpreter: Path, algorithm: str, pace: Pace
) -> dict[str, tuple[float, ...]]:
    command = (interpreter, virtual_environment.PROGRAMS / "rllib_steps.py")
    with PeerProcess(command, patience_seconds=_PATIENCE_SECONDS) as process:
        process.ask(algorithm=algorithm, **_COMMAND)

        def theirs() -> float:
            return float(process.ask(seconds=pace.seconds)["rate"])

        measured = interleave({"ours": ours, "theirs": theirs}, pace.rounds)
        process.ask(end=True)
    return measured
