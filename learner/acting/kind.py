"""A kind of acting, as a run is built from it: on time steps here, or on tokens.

`learner.build` chooses once, and asks no further: `on_steps`, or
`learner.acting.token_acting.on_tokens`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from learner.acting.act_step import example_page
from learner.acting.actor import build_actor, page_rows
from learner.acting.loop import Acting
from learner.serving.batching import BatchRule, free_running, lock_step, rounds
from learner.serving.ledger import AT_REST, Equation
from seedrl.agents.agent import Agent
from seedrl.config import Config, page_steps
from seedrl.specs import EnvSpec
from seedrl.types import Page


class ActingKind(NamedTuple):
    """How a run acts."""

    # Of the numbers of devices that learn, of devices that act, and of hosts, and the bytes of a
    # device. Raises ConfigError for more than it can use, or too few.
    check: Callable[[int, int, int, int], None]
    page_steps: int  # K, time steps of a page
    page: Callable[[Agent, EnvSpec], Page]  # shapes and dtypes
    page_rows: Callable[[int], Sequence[int]]  # pages sent at once, for a number of training slots
    rules: tuple[BatchRule, BatchRule]  # of training slots, and of evaluation slots
    at_rest: Sequence[Equation]  # what balances when the session has stopped
    actor: Callable[..., Any]  # for one inference device, as `build_actor`
    acting: Callable[..., Acting]  # with that actor; its other args are those of `Acting`


def on_steps(config: Config) -> ActingKind:
    """Time steps are answered at once, in batches."""
    free = free_running(config.serving.batch_deadline_seconds)
    rule = {"asynchronous": free, "synchronous": rounds(), "deterministic": lock_step()}
    # Batch sizes, and page counts, that programs are compiled for. Unless both sides run at once
    # every batch has all slots that are played, and their pages fill up together.
    num_sizes = 3 if config.learning.schedule == "asynchronous" else 1
    steps = page_steps(config)
    return ActingKind(
        check=lambda *_: None,
        page_steps=steps,
        page=lambda agent, spec: example_page(agent, spec, steps),
        page_rows=lambda slots: page_rows(slots, num_sizes),
        rules=(rule[config.learning.schedule], free),
        at_rest=AT_REST,
        actor=functools.partial(build_actor, rungs=num_sizes),
        acting=Acting,
    )
