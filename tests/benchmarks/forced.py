"""Is the verdict of a run right, and does `--balance auto` follow it?

`python -m tests.benchmarks.forced` takes eleven minutes on two quiet cores; names of cases choose.

Each case is a run of `seedrl train` that is slow for one reason: of ten cases the run's own
`status.json` has to name nine right, and what it predicts of the named change has to be within 15
points of what the change brings. The change is made in the live run if that is possible, else in a
second run.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from learner.cli.arguments import table
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL
from tests.benchmarks import live
from tests.benchmarks.live import promised
from tests.benchmarks.paced_environment import set_pace
from tests.benchmarks.started_runs import Observed, running, use_one_core

PROG = "python -m tests.benchmarks.forced"
_MOST_ERROR = 0.15


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run that is slow for one reason.

    Attributes:
      cause: that the run should name.
      config: file beside this one.
      words: options of `seedrl train`.
      pace: see `paced_environment.set_pace`.
      change: options on top that make the named change; None if `live` does.
      live: the pace that makes the change in the live run.
      network_ms: delay of each message, each way.
      neighbours: processes that compute on the run's only core until the change is made.
    """

    cause: str
    config: str = "paced.py"
    words: str = ""
    pace: Mapping[str, float]
    change: str | None = None
    live: Mapping[str, float] | None = None
    network_ms: float = 0.0
    neighbours: int = 0


CASES = {
    "slow environment": Case(
        cause="slow environments",
        words="--env-servers 2 --envs 8",
        pace={"others": 20},
        change="--env-servers 3 --envs 12",
    ),
    "slow network": Case(
        cause="slow network",
        words="--envs 8",
        pace={"others": 0.2},
        network_ms=20,
        change="--envs 16",
    ),
    "slow update": Case(
        cause="slow updates",
        words="--env-servers 4 --envs 16 --replay.ratio 1 --learning.batch-sequences 32 "
        "--agent.update-ms 400",
        pace={"others": 20},
        change="--replay.ratio 0.5",
    ),
    "one straggler": Case(
        cause="one straggler",
        words="--env-servers 3 --envs 12",
        pace={"others": 20, "process_1": 100},
        live={"others": 20},
    ),
    "busy neighbour": Case(
        cause="busy neighbour",
        words="--env-servers 1 --envs 8 --replay.ratio 16",
        pace={"others": 0},
        live={"others": 0},
        neighbours=1,
    ),
    "small batch": Case(
        cause="small batches",
        words="--env-servers 1 --envs 2 --groups 1 --agent.act-ms 30",
        pace={"others": 0},
        change="--envs 4",
    ),
    "long deadline": Case(
        cause="long deadline",
        words="--env-servers 3 --envs 6 --groups 1 --serving.batch-deadline-seconds 0.04",
        pace={"others": 400, "process_1": 20},
        change="--serving.batch-deadline-seconds 0.02",
    ),
    "too few groups": Case(
        cause="too few groups",
        words="--env-servers 1 --envs 4 --groups 1 --agent.act-ms 15",
        pace={"others": 10},
        change="--groups 2",
    ),
    "high ratio": Case(
        cause="high replay ratio",
        words="--env-servers 2 --envs 8 --replay.ratio 16 --learning.batch-sequences 32 "
        "--agent.update-ms 60",
        pace={"others": 20},
        change="--replay.ratio 8",
    ),
    "full queue": Case(
        config="paced_queue.py",
        cause="full queue",
        # Steps come in bursts, of one update each: short ones, for an exact rate.
        words="--env-servers 2 --envs 8 --agent.epoch-ms 100",
        pace={"others": 2},
        change="--agent.epochs 4",
    ),
}


@contextlib.contextmanager
def neighbours(number: int) -> Iterator[Callable[[], None]]:
    """Processes that compute on the first core; what is given ends them."""
    spin = (sys.executable, "-c", "while True: pass")
    processes = [subprocess.Popen(spin, preexec_fn=use_one_core) for _ in range(number)]

    def end() -> None:
        for process in processes:
            process.kill()
            process.wait()

    try:
        yield end
    finally:
        end()


def measured(case: Case, seconds: float, folder: Path) -> dict[str, Any]:
    """What the run says, and what its change brings."""

    def started(words: Sequence[str], name: str) -> contextlib.AbstractContextManager[Observed]:
        return running(
            words,
            case.pace,
            folder / name,
            config=case.config,
            network_ms=case.network_ms,
            on_one_core=case.neighbours > 0,
        )

    words = case.words.split()
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(started(words, "before"))
        run.wait_until_learning()
        end = stack.enter_context(neighbours(case.neighbours))
        before = run.over(seconds)
        if case.live is not None:
            end()
            set_pace(folder / "before", **case.live)
            after = run.over(seconds)
    if case.change is not None:
        with started([*words, *case.change.split()], "after") as run:
            run.wait_until_learning()
            after = run.over(seconds)
    gain = after["steps_per_second"] / before["steps_per_second"] - 1
    is_right = before["cause"] == case.cause
    error = before["predicted"] - gain
    return {
        "expected": case.cause,
        "is_right": is_right,
        "measured": gain,
        "is_within": is_right and abs(error) <= _MOST_ERROR,
        **before,
        "after": after,
    }


def lines(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The table, and what was promised."""
    rows = [("case", "named", "steps/s", "change", "predicted", "measured", "")]
    for name, each in found.items():
        remark = "wrong" if not each["is_right"] else "" if each["is_within"] else "off"
        rows.append(
            (
                name,
                each["cause"],
                f"{each['steps_per_second']:.0f}",
                each["change"],
                f"{each['predicted']:+.0%}",
                f"{each['measured']:+.0%}",
                remark,
            )
        )
    yield from table(rows)
    number = len(found)
    right = sum(each["is_right"] for each in found.values())
    within = sum(each["is_within"] for each in found.values())
    least = -(-9 * number // 10)
    text = f"the cause is right in {right} of {number} (at least {least})"
    yield promised(right >= least, text)
    close = f"the predicted gain is also within {100 * _MOST_ERROR:.0f} points"
    yield promised(within >= least, f"{close} in {within} of {number} (at least {least})")


@dataclass(frozen=True, kw_only=True)
class ForcedOptions:
    """Run cases that are slow for one reason, and compare what the runs say with the truth.

    Then a run with --balance auto; see tests/benchmarks/live.py.

    Attributes:
      names: cases, or "balance auto"; by default all.
      seconds: duration of each measurement.
      output: JSON file to write.
      logs: keep the folders of the runs here.
    """

    names: Annotated[tuple[str, ...], POSITIONAL] = ()
    seconds: float = 8.0
    output: Path | None = None
    logs: Path | None = None


def main(options: ForcedOptions) -> int:
    found: dict[str, dict[str, Any]] = {}
    followed: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="seedrl-forced-") as own:
        for name in options.names or (*CASES, live.NAME):
            folder = (options.logs or Path(own)) / name.replace(" ", "_")
            if name == live.NAME:
                followed = live.measured(options.seconds, folder)
            else:
                found[name] = measured(CASES[name], options.seconds, folder)
                print(f"{name}: {found[name]['balance']} {dict(found[name]['causes'])}", flush=True)
            if options.output is not None:
                options.output.write_text(json.dumps({**found, live.NAME: followed}, indent=1))
    print(*(lines(found) if found else ()), *(live.lines(followed) if followed else ()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(read(ForcedOptions, None, prog=PROG)))
