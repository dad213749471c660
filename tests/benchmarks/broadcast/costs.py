"""Measures the costs of the model, each part without the others."""

import functools
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from learner.extras.bench.measuring import rate
from learner.extras.bench.system import System
from learner.extras.bench.wire import answer
from learner.extras.bench.workloads import Workload
from learner.report.stages import ProcessorTime
from learner.runtime.channel import FilledPages
from seedrl.timing import WARNING_SECONDS
from tests.benchmarks.bare_actor import BareActor
from tests.benchmarks.broadcast.actor import Actors
from tests.benchmarks.broadcast.arms import learning_of, playing
from tests.benchmarks.broadcast.model import BATCH_ROWS, ROLLOUT_STEPS, Costs
from tests.benchmarks.broadcast.workload import (
    GROUP_ENVS,
    PAGE_STEPS,
    ROWS,
    config_of,
    num_parameters,
    spec_of,
)
from tests.benchmarks.inference import make_batch
from tests.benchmarks.paced_environment import set_pace

_NUM_BATCHES = 16
_SLOW_MS = 10.0  # a step of env servers, whose messages then come one by one


def processor_seconds(work: Callable[[], float], seconds: float, pids: Sequence[int] = ()) -> float:
    """Of what `work` returns the amount of, in this process and in those with these ids."""
    rate(work, seconds / 4)
    processor_time = ProcessorTime(pids)
    start, amount = time.monotonic(), 0.0
    while time.monotonic() - start < seconds:
        amount += work()
    spent = processor_time.spent(pids)
    return (spent["learner_cpu"] + spent["env_servers_cpu"]) / amount


def batch_seconds(system: System, workload: Workload, rows: int, seconds: float) -> float:
    """Of acting on batches of N rows that are there already, and learning from the pages."""
    actor = BareActor(workload, workload.config.serving)
    # Several, because messages that have just arrived are in no cache.
    batches = itertools.cycle([make_batch(workload, rows) for _ in range(_NUM_BATCHES)])
    channel, steps, woken = system.parts.channel, ROWS * PAGE_STEPS, threading.Event()
    channel.wake_acting = woken.set

    def act() -> None:
        for batch in itertools.islice(batches, steps // rows):
            actor.act(batch)
        system.parts.acting[0].totals.steps[0] += steps
        channel.limiter.acted(steps, ROWS)
        pages = FilledPages(actor.pages(), range(ROWS), range(ROWS), (), [0] * ROWS)
        channel.pages.put(pages, WARNING_SECONDS)
        woken.clear()
        while not channel.limiter.may_act():
            woken.wait(WARNING_SECONDS)
            woken.clear()

    bodies = {"acting": act, "learning": system.bodies["learning"]}
    interval = system.run(seconds, by_updates=True, bodies=bodies)
    return rows * interval.processor_seconds / interval.steps


def measure(
    widths: Sequence[int], observations: Sequence[int], actors: Actors, folder: Path, seconds: float
) -> Costs:
    """All costs: of each network, and of the smallest and the largest observation."""
    narrow, wide, small, large = widths[0], widths[-1], observations[0], observations[-1]
    first, wider, larger, more = (narrow, small), (wide, small), (narrow, large), large - small
    message, batch, actor, exchange = {}, {}, {}, {}

    def paced(work: Callable[[], float]) -> list[float]:
        """With environments that take no time, and with slow ones."""
        found = []
        for milliseconds in (0, _SLOW_MS):
            set_pace(folder, others=milliseconds)
            found.append(work())
        set_pace(folder, others=0)
        return found

    def acting() -> float:
        played = [each.result() for each in actors.play(seconds)]
        return sum(each[1] for each in played) / sum(each[0] for each in played)

    for case in [*((width, small) for width in widths), larger]:
        config = config_of(*case, folder)
        actors.make(*case, folder)
        workload = Workload(name="", config=config, spec=spec_of(case[1]))
        actor[case] = paced(acting)
        with System(config) as system:
            batch[case] = [batch_seconds(system, workload, rows, seconds) for rows in BATCH_ROWS]
            answered = functools.partial(answer, system.served.hub)
            pids = system.served.env_server_pids()
            message[case] = paced(functools.partial(processor_seconds, answered, seconds, pids))
            with playing(system.parts, actors, acts=False) as rollouts:
                sent = rollouts.measure(learning_of(system, actors), seconds)
                exchange[case] = ROLLOUT_STEPS * sent.cpu_seconds
    num_bytes = {width: 4 * num_parameters(width) for width in widths}
    params_byte = (exchange[wider] - exchange[first]) / (num_bytes[wide] - num_bytes[narrow])
    return Costs(
        message=(message[first][1], message[first][0]),
        message_byte=(message[larger][0] - message[first][0]) / (GROUP_ENVS * more),
        batch={width: (batch[width, small][0], batch[width, small][1]) for width in widths},
        batch_byte=(batch[larger][1] - batch[first][1]) / (BATCH_ROWS[1] * more),
        actor={width: (actor[width, small][0], actor[width, small][1]) for width in widths},
        actor_byte=(actor[larger][0] - actor[first][0]) / more,
        exchange=exchange[first] - num_bytes[narrow] * params_byte,
        rollout_byte=(exchange[larger] - exchange[first]) / (ROLLOUT_STEPS * more),
        params_byte=params_byte,
        deadline_seconds=config.serving.batch_deadline_seconds,
    )
