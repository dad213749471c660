"""Updates on N devices: `python -m tests.benchmarks.devices --devices N`, a measuring process.

First it prints its memory, `{"bytes": M}`. Each line is answered with the seconds of a trained
sequence, `{"seconds_per_sequence": T}`.
"""

import json
import os
import sys
from dataclasses import dataclass

from learner.bench.measure.cpu import tree_bytes
from learner.bench.measure.interleave import rate
from learner.bench.rigs import workloads
from learner.bench.rigs.bare_learner import BareLearner
from learner.bench.rigs.workloads import Workload
from learner.cli.arguments import parse_flags
from learner.session.process import tune_process

_PAGES_PER_INSERT = 16


@dataclass(frozen=True, kw_only=True)
class DevicesOptions:
    """Measures updates.

    Attributes:
      devices: that share an update.
    """

    devices: int


def workload() -> Workload:
    """CartPole; capacity and batch are those of each device."""
    return workloads.scaled(workloads.cartpole(), capacity_steps=20_000, batch_sequences=32)


def main() -> None:
    """Answers until stdin ends."""
    options = parse_flags(DevicesOptions, sys.argv[1:], prog="devices")
    cartpole = workload()
    learning = cartpole.config.learning
    tune_process(keeps_freed_memory=learning.keep_freed_memory)
    learner = BareLearner(
        cartpole,
        pages_per_insert=_PAGES_PER_INSERT * options.devices,
        num_devices=options.devices,
    )
    learner.fill()
    learner.learn()
    amount = options.devices * learning.batch_sequences

    def update() -> int:
        learner.learn()
        return amount

    print(json.dumps({"bytes": tree_bytes(os.getpid())}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"seconds_per_sequence": 1 / rate(update, float(line))}), flush=True)


if __name__ == "__main__":
    main()
