"""Tokens: completions through the whole system against a decode loop of the same network.

The system has its env servers, over links of one host, and token generator; it learns nothing. The
loop is one compiled program: it decodes a token in every row, tick by tick, with no host between
ticks.
"""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from learner.extras.bench.measuring import Pace, Result, apart, interleave, rate
from learner.extras.bench.system import System
from learner.extras.bench.workloads import ENDLESS
from seedrl.agents.check import build_agent
from seedrl.config import Config, EnvironmentConfig, LaunchConfig, LearningConfig, ServingConfig
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig
from seedrl.replay.group_queue import GroupQueueConfig
from seedrl.rl import tokens
from seedrl.timing import POLL_SECONDS
from seedrl.types import Array, Tree
from tests.benchmarks.token_lengths import VOCABULARY, LengthsConfig

_SLOTS = 64
_MEAN_LENGTH = 32
_ENV_SERVERS = 2
# Of the acting thread's time: ticks, waiting for turns, answering, all else.
_SHARES = [f"acting_{stage}_share" for stage in ("act", "environment", "wire", "other", "waits")]


# Of about half a million parameters, as in the bundled configurations, and of ten million.
_NETWORKS = {"small": {}, "large": {"layers": 6, "width": 384, "heads": 6, "ffn": 1024}}


def run(pace: Pace) -> Iterator[Result]:
    """Completions of 32 tokens each, then of 32 on average and geometric, up to 128."""
    for size in _NETWORKS:
        for longest, mean_length in ((_MEAN_LENGTH, 0), (4 * _MEAN_LENGTH, _MEAN_LENGTH)):
            config = lengths_config(longest, mean_length, size)
            yield from apart(config, results, config, pace)


def lengths_config(longest: int, mean_length: int, size: str = "small") -> Config:
    """Completions of up to `longest` tokens; see `LengthsConfig`."""
    sizes: dict[str, Any] = _NETWORKS[size]
    network = DecoderConfig(vocabulary=VOCABULARY, tied=False, context=1 + longest, **sizes)
    return Config(
        environment=EnvironmentConfig(
            id="tests.benchmarks.token_lengths:Lengths", arguments=json.dumps({"longest": longest})
        ),
        agent=LengthsConfig(network=network, group=16, mean_length=float(mean_length)),
        serving=ServingConfig(training_slots=_SLOTS, evaluation_slots=0),
        # So far ahead that acting never waits for groups to be taken.
        replay=GroupQueueConfig(max_lag_updates=4),
        learning=LearningConfig(batch_sequences=128, total_steps=ENDLESS),
        launch=LaunchConfig(env_servers=_ENV_SERVERS, envs_per_server=_SLOTS // _ENV_SERVERS),
    )


def results(config: Config, pace: Pace) -> Iterator[Result]:
    """A figure against the loop that is never idle and, of unequal lengths, one that waits."""
    network, is_equal = config.agent.network, not config.agent.mean_length
    kind = "equal" if is_equal else "geometric"
    limits = {"ideally packed loop": 0.85 if is_equal else 0.8}
    if not is_equal:
        limits["loop that waits for the longest"] = 1.5
    details: dict[str, float] = {}
    with System(config) as system:

        def sampled() -> float:
            metrics = system.run(pace.seconds, bodies=_acting_bodies(system)).metrics
            details["tokens a completion"] = metrics["completion_tokens"]
            details.update({name: metrics[name] for name in _SHARES if name in metrics})
            return metrics["generated_tokens_per_second"]

        assert system.served.hub.spec is not None
        params = build_agent(config.agent, system.served.hub.spec).init(jax.random.PRNGKey(0))
        measures: dict[str, Callable[[], float]] = {"system": sampled}
        for name in limits:
            loop = decode_loop(network, params, waits="waits" in name)
            measures[name] = functools.partial(rate, loop, pace.seconds)
        measured = interleave(measures, pace.rounds)
    for name, target in limits.items():
        yield Result(
            name=f"tokens: {network.width} wide, {kind} lengths / {name}",
            unit="tokens/s",
            limit_name=name,
            ours=measured["system"],
            limits=measured[name],
            target=target,
            conditions=_conditions(config),
            details=details,
        )


def decode_loop(network: DecoderConfig, params: Tree, *, waits: bool) -> Callable[[], int]:
    """A batch of completions in one program; it returns the number of their tokens.

    With `waits` a row that has ended is idle until all have; without none ever ends before the
    limit, as if another row took its place at once.
    """
    longest, end = network.context - 1, VOCABULARY - 1

    @jax.jit
    def program(params: Tree, key: Array) -> tuple[Array, ...]:
        def goes_on(loop: tuple[Tree, ...]) -> Array:
            _, place, is_open, _, _, _ = loop
            return (place < longest) & jnp.any(is_open)

        def tick(loop: tuple[Tree, ...]) -> tuple[Tree, ...]:
            cache, place, is_open, last, ids, log_mu = loop
            cache, logits = decoder.decode(network, params, cache, last, is_open)
            last, own = tokens.sample(jax.random.fold_in(key, place), logits, 1.0)
            ids = ids.at[place].set(jnp.where(is_open, last, -1))
            log_mu = log_mu.at[place].set(own)
            is_open = is_open & (last != end) if waits else is_open
            return cache, place + 1, is_open, last, ids, log_mu

        # A question of one id: the first tick reads it.
        question, all_rows = jnp.zeros(_SLOTS, jnp.int32), jnp.ones(_SLOTS, bool)
        ids = jnp.full((longest, _SLOTS), -1, jnp.int32)
        start = (decoder.empty_cache(network, _SLOTS), 0, all_rows, question, ids)
        return jax.lax.while_loop(goes_on, tick, (*start, jnp.zeros(ids.shape)))[-2:]

    keys = map(jax.random.PRNGKey, range(ENDLESS))

    def batch() -> int:
        # Both are given back: XLA computes only results that somebody takes.
        ids, _ = program(params, next(keys))
        return int(np.count_nonzero(np.asarray(ids) >= 0))

    batch()  # compiles
    return batch


def _acting_bodies(system: System) -> dict[str, Callable[[], object]]:
    learning, channel = system.parts.learning, system.parts.channel
    batch = system.served.config.learning.batch_sequences

    def take() -> None:
        # All of an update but the update.
        learning.insert_pages(POLL_SECONDS)
        while learning.num_sequences >= batch:
            for index in learning.indices:
                index.draw()
            channel.limiter.took()
            channel.wake_acting()

    return {**system.bodies, "learning": take}


def _conditions(config: Config) -> dict[str, str]:
    agent = config.agent
    network = agent.network
    lengths = f"{agent.mean_length:g} on average, " if agent.mean_length else ""
    return {
        "network": f"{network.layers} blocks of {network.width}, vocabulary {network.vocabulary}",
        "slots": f"{_SLOTS} on {_ENV_SERVERS} env servers, a message each",
        "completions": f"{lengths}at most {network.context - 1} tokens",
    }
