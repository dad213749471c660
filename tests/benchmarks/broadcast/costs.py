"""Measures the costs of the model, each part without the others."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from learner.extras.bench.measuring import rate
from learner.extras.bench.system import System
from learner.extras.bench.wire import answer
from learner.extras.bench.workloads import Workload
from learner.report.stages import ProcessorTime
from tests.benchmarks.bare_actor import BareActor
from tests.benchmarks.broadcast.actor import Actors
from tests.benchmarks.broadcast.arms import learning_of, playing
from tests.benchmarks.broadcast.model import BATCH_ROWS, ROLLOUT_STEPS, Costs
from tests.benchmarks.broadcast.workload import GROUP_ENVS, PAGE_STEPS, ROWS, config_of, spec_of
from tests.benchmarks.inference import make_batch


def processor_seconds(work: Callable[[], float], seconds: float, pids: Sequence[int] = ()) -> float:
    """Of what `work` returns the amount of, in this process and in those with these ids."""
    rate(work, seconds / 4)
    processor_time = ProcessorTime()
    processor_time.others(pids)
    start, amount = time.monotonic(), 0.0
    while time.monotonic() - start < seconds:
        amount += work()
    return (processor_time.own() + processor_time.others(pids)) / amount


def bare_act(workload: Workload, rows: int) -> Callable[[], int]:
    """Acts until all pages are full and takes them; returns the number of batches of N rows."""
    actor, batch = BareActor(workload, workload.config.serving), make_batch(workload, rows)
    number = ROWS // rows * PAGE_STEPS

    def act() -> int:
        for _ in range(number):
            actor.act(batch)
        jax.block_until_ready(actor.pages())
        return number

    return act


def measure(
    widths: Sequence[int], observations: Sequence[int], actors: Actors, folder: Path, seconds: float
) -> Costs:
    """All costs: of each network, and of the smallest and the largest observation."""
    narrow, wide, small, large = widths[0], widths[-1], observations[0], observations[-1]
    first, wider, larger, more = (narrow, small), (wide, small), (narrow, large), large - small
    message, batch, actor, exchange = {}, {}, {}, {}
    for case in [*((width, small) for width in widths), larger]:
        config = config_of(*case, folder)
        actors.make(*case, folder)
        workload = Workload(name="", config=config, spec=spec_of(case[1]))
        batch[case] = [processor_seconds(bare_act(workload, rows), seconds) for rows in BATCH_ROWS]
        played = [each.result() for each in actors.play(seconds)]
        actor[case] = sum(each[1] for each in played) / sum(each[0] for each in played)
        with System(config) as system:
            hub, pids = system.served.hub, system.served.env_server_pids()
            message[case] = processor_seconds(lambda hub=hub: answer(hub), seconds, pids)
            with playing(system.parts, actors, acts=False) as rollouts:
                exchange[case] = rollouts.measure(learning_of(system, actors), seconds)
    rollout = {case: ROLLOUT_STEPS * each.cpu_seconds for case, each in exchange.items()}
    sent = {case: ROLLOUT_STEPS * each.bytes_down for case, each in exchange.items()}
    params_byte = (rollout[wider] - rollout[first]) / (sent[wider] - sent[first])
    return Costs(
        message=message[first],
        message_byte=(message[larger] - message[first]) / (GROUP_ENVS * more),
        batch={width: (batch[width, small][0], batch[width, small][1]) for width in widths},
        batch_byte=(batch[larger][1] - batch[first][1]) / (BATCH_ROWS[1] * more),
        actor={width: actor[width, small] for width in widths},
        actor_byte=(actor[larger] - actor[first]) / more,
        exchange=rollout[first] - sent[first] * params_byte,
        rollout_byte=(rollout[larger] - rollout[first]) / (ROLLOUT_STEPS * more),
        params_byte=params_byte,
        deadline_seconds=config.serving.batch_deadline_seconds,
    )
