"""`recall_r2d2` with a burn-in, and a choice of the carry that a sequence starts from.

The burn-in of 10 rows, and as many fewer rows that are trained, are of this comparison alone:
without one, late would be exact.
"""

import dataclasses

from configs.recall_r2d2 import config as recall
from seedrl.config import Config
from tests.benchmarks.stored_state.agent import from_r2d2


def config() -> Config:
    config = from_r2d2(recall())
    return dataclasses.replace(
        config, agent=dataclasses.replace(config.agent, burn_in=10, unroll=30)
    )
