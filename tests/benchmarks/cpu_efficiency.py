"""CPU efficiency: of all CPU seconds of a Pong run, the share that stepping and programs need.

What they need is measured by themselves, interleaved with the run: CPU seconds of an environment
step, of a row acted on, of an update. All processes of the run count, in whatever they do.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from learner.bench import pipeline
from learner.bench.inference import make_batch
from learner.bench.measure.interleave import Pace, interleave, rate, spread
from learner.bench.measure.result import Result
from learner.bench.rigs.bare_actor import BareActor
from learner.bench.rigs.raw_stepping import RawStepping
from learner.bench.rigs.system import System
from learner.bench.rigs.workloads import Workload
from seedrl.config import Config

# What each run needs, in CPU seconds of an environment step.
_PARTS = {
    "acting": ("stepping", "inference"),
    "learning": ("stepping", "inference", "update"),
}
_NAMES = {"acting": "acting", "learning": "acting and learning"}
_TARGETS = {"acting": 0.75, "learning": 0.85}


def run(pace: Pace) -> Iterator[Result]:
    """Pong, acting only and learning at replay ratio 1."""
    return results(pipeline.pong(), pace)


def results(workload: Workload, pace: Pace) -> Iterator[Result]:
    """CPU time of an environment step: what is needed, beside what is taken."""
    measured = measure(workload, pace)
    for key, parts in _PARTS.items():
        needed = zip(*(measured[part] for part in parts), strict=True)
        yield Result(
            name=f"useful: {workload.name}, {_NAMES[key]}",
            unit="CPU µs/step",
            limit_name="all processes",
            ours=tuple(1e6 * sum(each) for each in needed),
            limits=tuple(1e6 * taken for taken in measured[key]),
            target=_TARGETS[key],
            conditions=pipeline.described(workload, key),
            details={f"{part} µs": 1e6 * spread(measured[part]).median for part in parts},
        )


def measure(workload: Workload, pace: Pace) -> dict[str, tuple[float, ...]]:
    """CPU seconds of an environment step: of the parts by themselves, and of both runs."""
    with contextlib.ExitStack() as stack:
        _, acting_config, learning_config = pipeline.configs(workload.config)
        acting = stack.enter_context(System(acting_config))
        learning = stack.enter_context(System(learning_config))
        stepping = stack.enter_context(RawStepping(workload.config))
        learning.run_until(lambda: learning.parts.learning.updates > 0)
        inference = _inference(workload, acting.served.config)
        update = pipeline.bare_update(workload)
        return interleave(
            {
                "stepping": lambda: stepping.cpu_seconds_per_step(pace.seconds),
                "acting": lambda: _taken(acting, pace),
                "inference": lambda: _cpu_seconds(inference, pace),
                "learning": lambda: _taken(learning, pace, by_updates=True),
                "update": lambda: _cpu_seconds(update, pace),
            },
            pace.rounds,
        )


def _inference(workload: Workload, served: Config) -> Callable[[], float]:
    """Acting on as many rows as the run's batches have; returns their number."""
    actor = BareActor(workload, served.serving)
    batch = make_batch(workload, served.serving.training_slots // 2)
    actor.act(batch)
    return lambda: len(actor.act(batch))


def _taken(system: System, pace: Pace, *, by_updates: bool = False) -> float:
    interval = system.run(pace.seconds, by_updates=by_updates)
    return interval.cpu_seconds / interval.steps


def _cpu_seconds(work: Callable[[], float], pace: Pace) -> float:
    """CPU seconds of this process for each unit of `work`."""
    start, amount = time.process_time(), 0.0

    def counted() -> float:
        nonlocal amount
        done = work()
        amount += done
        return done

    rate(counted, pace.seconds)
    return (time.process_time() - start) / amount
