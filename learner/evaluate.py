"""Playing a checkpoint through the service, with learning off."""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from learner.acting.act_step import example_page
from learner.acting.actor import Actor, build_actor
from learner.acting.evaluator import Round, Score, evaluation_exploration
from learner.acting.loop import EpisodeTracker, metrics_by_slot
from learner.runtime.channel import VersionedParams
from learner.runtime.worker import Deaths
from learner.serving.batching import lock_step
from learner.serving.core import Batch, Serving
from learner.serving.hub import Hub
from learner.serving.leases import Role, SlotRange, SlotTable, session_seed
from learner.serving.server import Service
from seedrl.agents.agent import Agent
from seedrl.checkpoints import PARAMS, Checkpoint, read, updates_of_params
from seedrl.config import MOST_EPISODE_STEPS, Actions, Config
from seedrl.policy import restored
from seedrl.specs import ActionSpec, EnvSpec, TokensSpec
from seedrl.timing import POLL_SECONDS
from seedrl.types import StepType


class Evaluation(NamedTuple):
    """Undiscounted returns of a checkpoint's policy, lengths in agent steps, and metrics."""

    # Of the returns.
    mean: float
    standard_error: float
    minimum: float
    maximum: float
    # Fewer than were asked for if some never ended: how many each slot plays is fixed beforehand.
    episodes: int
    updates: int  # version of the parameters
    step: int  # updates of the checkpoint, which are more if it holds confirmed parameters
    # Of each episode.
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    mean_length: float
    metrics: dict[str, float]  # means of `environment.metrics`, by name
    exploration: float  # of all slots; 0 is deterministic
    cut: int = 0  # episodes that were cut short after `max_episode_steps`, and count as they were
    # Slots whose env server was lost: their later environments do not follow from the seed.
    slots_leased_again: int = 0


def evaluate(
    config: Config,
    workdir: Path,
    *,
    update: int | None = None,
    is_best: bool = False,
    episodes: int,
    seed: int | None = None,
    actions: Actions | None = None,
    max_episode_steps: int = MOST_EPISODE_STEPS,
    raise_failure: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Serves until env servers have played `episodes` of a checkpoint; blocks.

    All slots play in lock step, once all are leased but those of disabled environments. So the
    result follows from the seed for any number of env servers, if each environment has a seed of
    its own (`environment.vectorization` other than `native`) and no env server is lost meanwhile.

    Args:
      config: of the run; its `serving.bind` is served on.
      workdir, update, is_best: which checkpoint; see `seedrl.checkpoints.choose`.
      episodes: how many to play, shared out evenly over the slots.
      seed: of environments and random actions; by default the run's.
      actions: see `EvaluationConfig.actions`; by default the run's.
      max_episode_steps: an episode that has not ended by itself is cut short here, and its
        environment plays the next one after it has. One that does not in as many steps more plays
        no more.
      raise_failure: called often; raises if no env server will come any more.
    """
    most = config.serving.training_slots + config.serving.evaluation_slots
    num_slots = min(most, episodes)
    seed = config.seed if seed is None else seed
    slots = SlotTable(training=0, evaluation=num_slots, seed=session_seed(seed, "evaluation"))
    serving = Serving(slots, page_steps=1, rule=lock_step())
    agent, spec, frozen, step = read(
        workdir,
        functools.partial(_restored, config),
        step=update,
        is_best=is_best,
        parts=PARAMS,  # a saved replay may be large
    )
    hub = Hub(serving, config.environment, spec=spec)
    with Deaths() as deaths, Service(hub, config.serving) as service:
        exploration = evaluation_exploration(
            agent, actions or config.evaluation.actions, config.serving.training_slots
        )
        actor = _actor(agent, spec, num_slots, exploration=exploration, seed=seed)

        def check() -> None:
            raise_failure()
            deaths.raise_first()

        player = _Player(hub, actor, frozen, check, max_episode_steps, action=spec.action)
        score = player.play(episodes)
        # A slot's second lease gives other seeds.
        leased_again = int(np.count_nonzero(slots.epochs > 1))
        # Else env servers would try to return.
        service.finish("the evaluation is over", grace_seconds=1.0)
    returns, lengths = np.asarray(score.returns), tuple(each.length for each in score.episodes)
    return Evaluation(
        mean=float(returns.mean()),
        standard_error=float(returns.std(ddof=min(1, len(returns) - 1)) / np.sqrt(len(returns))),
        minimum=float(returns.min()),
        maximum=float(returns.max()),
        episodes=len(returns),
        updates=score.frozen.version,
        step=step,
        returns=score.returns,
        lengths=lengths,
        mean_length=score.mean_length,
        metrics=score.mean_metrics(config.environment.metrics),
        exploration=exploration,
        cut=sum(each.is_cut for each in score.episodes),
        slots_leased_again=leased_again,
    )


def _restored(
    config: Config, checkpoint: Checkpoint
) -> tuple[Agent, EnvSpec, VersionedParams, int]:
    agent, params, spec = restored(config, checkpoint)
    actor_params = jax.device_put(agent.actor_params(params), jax.local_devices()[0])
    frozen = VersionedParams(actor_params, updates_of_params(checkpoint))
    return agent, spec, frozen, checkpoint.step


def _actor(agent: Agent, spec: EnvSpec, num_slots: int, *, exploration: float, seed: int) -> Actor:
    """An actor that explores on all slots alike, and fills no pages."""
    # Batches count in half of the key: with the seed itself there, two seeds would share keys.
    key, _ = jax.random.split(jax.random.PRNGKey(seed))
    return build_actor(
        agent,
        spec,
        example_page(agent, spec, 1),
        slot_ranges=[SlotRange("evaluation", 0, num_slots)],
        exploration=np.full(num_slots, exploration, np.float32),
        decay_steps=0,
        key=key,
        device=jax.local_devices()[0],
        rungs=1,  # in lock step every batch has all slots
    )


class _Player:
    """Plays frozen parameters on all slots, in the caller's thread.

    `check` is called often; it raises if nothing can be played any more.
    """

    def __init__(
        self,
        hub: Hub,
        actor: Actor,
        frozen: VersionedParams,
        check: Callable[[], None],
        max_episode_steps: int = MOST_EPISODE_STEPS,
        *,
        action: ActionSpec | None = None,
    ):
        self._hub, self._actor, self._frozen, self._check = hub, actor, frozen, check
        self._most_steps = max_episode_steps
        self._is_tokens = isinstance(action, TokensSpec)
        self._episodes = EpisodeTracker(actor.num_slots)

    def play(self, episodes: int) -> Score:
        """Plays a round; starts it again if env servers appear or leave."""
        round_: Round | None = None
        next_look = 0.0
        while True:
            now = time.monotonic()
            if now >= next_look:
                next_look = now + POLL_SECONDS
                self._check()
                round_ = self._current_round(round_, episodes)
            roles: list[Role] = [] if round_ is None else ["evaluation"]
            batch = self._hub.next_batch(roles, timeout=POLL_SECONDS)
            if batch is not None and round_ is not None:
                self._act(batch, round_)
                if round_.score is not None:
                    return round_.score
                if self._is_stuck(round_):
                    return round_.score_so_far

    def _current_round(self, round_: Round | None, episodes: int) -> Round | None:
        # First: an env server that is back by now has played with other seeds meanwhile.
        cut = self._hub.take_ended()
        live = self._hub.live_slots("evaluation")
        # The others play the episodes of an environment that is disabled.
        if cut or len(live) < max(1, self._actor.num_slots - self._hub.num_disabled):
            return None
        return round_ or Round(self._frozen, live, episodes)

    def _act(self, batch: Batch, round_: Round) -> None:
        staged = self._actor.stage(batch)
        timestep, num_rows = staged.rows.timestep, len(batch.slots)
        # Of the rows that are not padding.
        step_type, reward = (leaf[:num_rows] for leaf in timestep[:2])
        if self._is_tokens:  # an episode starts with a question that was asked for
            step_type[timestep.observation[:num_rows, 0] > 0] = StepType.FIRST
        actions = self._actor.act(batch, staged, self._frozen)
        self._hub.answer(batch, actions)
        ended = self._episodes.observe(batch.slots, step_type, reward)
        if self._is_tokens:  # it ends where the policy asks for another question, as in training
            ended += batch.slots[actions[:num_rows, 0] > 0].tolist()
        metrics = metrics_by_slot(batch)
        episodes = {slot: self._episodes.episode(slot, metrics.get(slot, ())) for slot in ended}
        is_cut = self._episodes.lengths[batch.slots] == self._most_steps
        for slot in set(batch.slots[is_cut].tolist()).difference(ended):
            episodes[slot] = self._episodes.episode(slot)._replace(is_cut=True)
        round_.observe(batch.slots, batch.streams, step_type, episodes)

    def _is_stuck(self, round_: Round) -> bool:
        # All that still have episodes to play are in one that was cut short long ago.
        lengths = self._episodes.lengths[round_.missing_slots]
        return bool(round_.returns) and bool((lengths >= 2 * self._most_steps).all())
