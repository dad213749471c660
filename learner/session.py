"""A training session: everything that is built once the environment's spec is known."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from learner.act_step import build_act_programs, example_page
from learner.acting import Acting, FilledPages
from learner.batch_ladder import BatchLadder
from learner.channel import Channel, Mailbox
from learner.evaluation import Evaluator, FrozenParams, Score
from learner.geometry import Geometry, check_memory
from learner.learn_step import LearnerState, build_learn_programs
from learner.learning import Learning, Snapshot
from learner.ledger import ALWAYS, AT_REST, residues
from learner.lobby import Lobby
from learner.metrics import Metrics
from learner.rate_limiter import RateLimiter, RateLimiterState
from learner.saving import by_field, restore_replay, restore_state
from learner.sharding import map_programs, publish, replicate, stack_shards
from learner.worker import Worker
from seedrl.agents.agent import Agent
from seedrl.checkpoints import Checkpoint
from seedrl.config import Config
from seedrl.config_file import to_json
from seedrl.errors import CheckpointError
from seedrl.replay.index import PageIndex
from seedrl.replay.replay import ReplayState, paged_replay
from seedrl.specs import EnvSpec

_CHANNEL_CAPACITY = 64
_SNAPSHOT_SECONDS = 300.0


class Session:
    """Builds and runs acting and learning. Owned by the main thread.

    Attributes:
      acting, learning: what their threads do; read only counters of them from outside.
      evaluator: the evaluation's state.
      failed: set when a thread has died.
    """

    def __init__(
        self,
        config: Config,
        geometry: Geometry,
        lobby: Lobby,
        spec: EnvSpec,
        metrics: Metrics,
        checkpoint: Checkpoint | None,
    ):
        self._config = config
        self._spec = spec
        self._lobby = lobby
        self._metrics = metrics
        self._geometry = geometry
        agent: Agent = config.agent.build(spec)
        self._page = example_page(agent, spec, geometry.page_steps)
        self.replay_bytes = check_memory(self._page, geometry)

        self._limiter = RateLimiter(
            replay_ratio=config.learning.replay_ratio,
            batch_steps=config.learning.batch_sequences * agent.window.unroll,
            tolerance_updates=config.learning.tolerance_updates,
        )
        self._pages: Channel[FilledPages] = Channel(_CHANNEL_CAPACITY)
        self.evaluator = Evaluator(config.evaluation, time.monotonic())
        self._ladder = BatchLadder(
            spec,
            num_training=config.serving.training_slots,
            num_evaluation=config.serving.evaluation_slots,
        )
        self._build(agent, checkpoint)
        self.failed = threading.Event()
        self._workers = [
            Worker("acting", self.acting.run_once, self.failed),
            Worker("learning", self.learning.run_once, self.failed),
        ]

    def _build(self, agent: Agent, checkpoint: Checkpoint | None) -> None:
        config, geometry = self._config, self._geometry
        serving = config.serving
        replay = paged_replay(
            window=agent.window,
            page_steps=geometry.page_steps,
            capacity_pages=geometry.capacity_pages,
            priority_exponent=config.replay.priority_exponent,
            initial_priorities=agent.initial_priorities,
        )
        learn_programs = build_learn_programs(
            agent,
            replay,
            batch_per_device=geometry.batch_per_device,
            num_devices=len(geometry.devices),
            importance_exponent=config.replay.importance_exponent,
        )
        acting_key, learning_key = jax.random.split(jax.random.PRNGKey(config.seed))
        state = jax.jit(learn_programs.init)(learning_key)
        memory, indices = self._restored_replay(
            checkpoint,
            stack_shards(lambda: replay.init(self._page), geometry.devices),
            [
                PageIndex(
                    capacity_pages=geometry.capacity_pages,
                    window=agent.window,
                    page_steps=geometry.page_steps,
                )
                for _ in geometry.devices
            ],
        )
        training_steps = 0
        if checkpoint is not None:
            state = restore_state(checkpoint, state, config)
            training_steps = int(checkpoint.meta["env_steps"])
            self._limiter.restore(RateLimiterState(*checkpoint.meta["limiter"]))
            # The acting key of the checkpoint's session must not be used again.
            acting_key = jax.random.fold_in(acting_key, int(state.updates))
        # The learn step consumes its state; these copies belong to it alone.
        state = replicate(LearnerState(*state), geometry.devices)

        acting_device = geometry.devices[0]
        version = int(state.updates)
        params = Mailbox(FrozenParams(publish(state.params, acting_device), version))
        learned_version = Mailbox(version)
        act_programs = build_act_programs(
            agent,
            self._page,
            num_training=serving.training_slots,
            num_slots=serving.training_slots + serving.evaluation_slots,
            exploration=np.concatenate(
                [
                    np.asarray(agent.exploration(serving.training_slots), np.float32),
                    np.full(serving.evaluation_slots, agent.evaluation_exploration, np.float32),
                ]
            ),
        )
        self.acting = Acting(
            lobby=self._lobby,
            programs=act_programs,
            state=jax.device_put(act_programs.init(acting_key), acting_device),
            ladder=self._ladder,
            params=params,
            learned_version=learned_version,
            evaluator=self.evaluator,
            limiter=self._limiter,
            pages=self._pages,
            metrics=self._metrics,
            page_steps=geometry.page_steps,
            frames_per_step=config.environment.frames_per_step,
            training_steps=training_steps,
        )
        self.learning = Learning(
            lobby=self._lobby,
            programs=map_programs(learn_programs, geometry.devices),
            state=state,
            replay=memory,
            indices=indices,
            page_steps=geometry.page_steps,
            min_sequences_per_shard=geometry.min_sequences,
            params=params,
            learned_version=learned_version,
            limiter=self._limiter,
            pages=self._pages,
            metrics=self._metrics,
            acting_device=acting_device,
            publish_every_updates=config.learning.publish_every_updates,
        )

    def _restored_replay(
        self, checkpoint: Checkpoint | None, memory: ReplayState, indices: list[PageIndex]
    ) -> tuple[ReplayState, list[PageIndex]]:
        if checkpoint is None:
            return memory, indices
        try:
            saved = restore_replay(checkpoint, memory)
        except CheckpointError as error:
            sections = ("agent", "replay", "learning.num_devices")
            raise by_field(error, checkpoint, self._config, sections) from error
        if saved is None:
            return memory, indices
        for index, state in zip(indices, checkpoint.meta["replay_indices"], strict=True):
            # Streams go on only under new leases, which have new names: nothing is continued.
            index.restore({**state, "streams": []})
        return jax.tree.map(
            lambda new, old: jax.device_put(new, old.sharding), saved, memory
        ), indices

    def start(self) -> None:
        """Compiles everything, then starts both threads."""
        with ThreadPoolExecutor(2, thread_name_prefix="compile") as pool:
            for compiled in [
                pool.submit(self.acting.warm_up),
                pool.submit(self.learning.warm_up, self._page, self._ladder.page_rows),
            ]:
                compiled.result()
        for worker in self._workers:
            worker.start()

    def raise_failure(self) -> None:
        """Raises what a thread has died of."""
        for worker in self._workers:
            if worker.failure is not None:
                raise RuntimeError(
                    f"a thread of the learner died: {worker.failure}"
                ) from worker.failure

    def gauges(self) -> None:
        """Sets the metrics that are states rather than events."""
        self._metrics.gauge("replay_ratio", self._limiter.measured_ratio)
        self._metrics.gauge("replay_ratio_target", self._config.learning.replay_ratio)
        self._metrics.gauge("replay_sequences", self.learning.num_sequences)
        for account, rows in self._accounts().items():
            self._metrics.gauge(f"ledger/{account}", rows)

    def _accounts(self) -> dict[str, int]:
        # Replay first: it only holds what had been completed before.
        stored = self.learning.stored_rows
        return {**self._lobby.ledger(), "stored": stored, "abandoned": self.acting.abandoned_rows}

    def residues(self, *, at_rest: bool = False) -> list[str]:
        """What does not come out in the ledger, one a line; see `learner.ledger`.

        Args:
          at_rest: the session has stopped: nothing is on its way any more.
        """
        accounts = self._accounts()
        broken = residues(accounts, AT_REST if at_rest else ALWAYS)
        if accounts["stored"] > accounts.get("completed", 0):
            broken.append(f"ledger: stored {accounts['stored']}, more than were completed")
        return self._lobby.settlement_errors() + broken

    def meta(self) -> dict[str, Any]:
        """What a checkpoint says besides arrays."""
        return {
            "config": to_json(self._config),
            "env_spec": self._spec.to_json(),
            "env_steps": self.acting.training_steps,
            "limiter": list(self._limiter.state()),
        }

    def snapshot(self) -> Snapshot | None:
        """A copy of the learning thread's state while it runs; None if it does not answer."""
        answer = self.learning.request_snapshot(with_replay=self._config.checkpoint.replay)
        deadline = time.monotonic() + _SNAPSHOT_SECONDS
        while time.monotonic() < deadline and not self.failed.is_set():
            for snapshot in answer.take_all(timeout=0.1):
                return snapshot
        return None

    def stop(self, timeout: float) -> bool:
        """Ends both threads after their present piece of work; whether they ended in time."""
        self._limiter.close()
        self._pages.close()
        self._lobby.wake()
        has_stopped = all([worker.stop(timeout) for worker in self._workers])
        if has_stopped and not self.failed.is_set():
            self.learning.take_in()
        return has_stopped

    def final_snapshot(self) -> Snapshot:
        """The state after `stop`; with the confirmed parameters, if there are any."""
        snapshot = self.learning.final_snapshot(with_replay=self._config.checkpoint.replay)
        confirmed: Score | None = self.evaluator.confirmed
        if confirmed is None:
            return snapshot
        params = jax.tree.map(np.asarray, confirmed.frozen.params)
        return snapshot._replace(state=snapshot.state._replace(params=params))
