"""`cartpole_masked_r2d2` with a choice of the carry that a sequence starts from."""

from configs.cartpole_masked_r2d2 import config as masked
from seedrl.config import Config
from tests.benchmarks.stored_state.agent import from_r2d2


def config() -> Config:
    return from_r2d2(masked())
