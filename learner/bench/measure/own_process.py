"""Benchmarks in processes of their own, tuned as a learner of their configuration is.

What memory a process keeps cannot be changed any more once it has threads.
"""

import functools
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec

from learner.bench.measure.result import Result
from learner.session.process import tune_process
from seedrl.config import Config

P = ParamSpec("P")


def results(
    config: Config, measure: Callable[P, Iterator[Result]], *args: P.args, **kwargs: P.kwargs
) -> list[Result]:
    """The results of `measure(*args, **kwargs)`, a function of a module; raises what it raises.

    `config` is that of the learner whose tuning counts.
    """
    tune = functools.partial(tune_process, keeps_freed_memory=config.learning.keep_freed_memory)
    # Not forked: jax has threads here.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=tune) as pool:
        return pool.submit(_collect, functools.partial(measure, *args, **kwargs)).result()


def _collect(measure: Callable[[], Iterator[Result]]) -> list[Result]:
    return list(measure())
