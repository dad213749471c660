"""How acting and learning share time, and the threads that do it.

| schedule | threads | for |
|---|---|---|
| asynchronous | one that learns, one for each inference device | speed: both sides at once |
| synchronous | one: a round of acting, then learning from all of it | policy lag 0 |
| deterministic | one: a batch of all slots, then what is owed | the same bits twice |

Device arrays have one owner: recurrent state and open pages belong to the thread that acts on that
device, learner state and replay to the thread that learns. What crosses is in `System.channel`.
"""

import functools
import gc
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeAlias

import numpy as np

from learner.acting.actor import over_slots
from learner.build import System
from learner.learning.device_mapping import require_update_memory
from learner.report.metrics import Metrics
from learner.runtime.watchdog import Watchdog
from learner.runtime.worker import Worker
from learner.serving.hub import Hub
from learner.serving.ledger import ACCOUNTS, ALWAYS, QUEUED, residues
from seedrl.config import Config
from seedrl.errors import UserError
from seedrl.rl.exploration import decayed
from seedrl.timing import GRACE_SECONDS, POLL_SECONDS


class Asynchronous:
    """Acting and learning at the same time, each in a thread of its own.

    Acting starts as soon as its program for the largest batch is compiled. The programs of learning
    take longer, and replay has to fill anyway: learning inserts pages once insertion is compiled.
    The rate limiter bounds how far acting gets ahead meanwhile.

    Owns the thread that compiles for learning.
    """

    def __init__(self, system: System):
        self._system = system
        self._learning = system.learning
        self._totals = system.acting[0].totals
        self._first_step = self._own_steps
        # What each thread repeats, by the thread's name.
        names = ["acting", *(f"acting {number}" for number in range(1, len(system.acting)))]
        self.bodies: Mapping[str, Callable[[], object]] = {
            **{name: each.run_once for name, each in zip(names, system.acting, strict=True)},
            "learning": self._learn_once,
        }
        self._insertion: Future[None] = Future()
        self._update: Future[None] = Future()

    def warm_up(self) -> None:
        """Compiles what acting needs to start, and lets a thread compile everything else."""
        # One after the other: both would share the interpreter, and acting start later.
        self._system.acting[0].warm_up_largest()
        # The others have the same programs on their devices: XLA compiles them side by side.
        others = self._system.acting[1:]
        with ThreadPoolExecutor(max(1, len(others)), thread_name_prefix="compile") as pool:
            for compiled in [pool.submit(each.warm_up_largest) for each in others]:
                compiled.result()
        pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._insertion = pool.submit(self._compile_insertion)
        self._update = pool.submit(self._compile_update)
        pool.shutdown(wait=False)

    def finish_compiling(self) -> None:
        """Waits until everything is compiled. Raises what compiling has raised."""
        self._insertion.result()
        self._update.result()

    def _compile_insertion(self) -> None:
        # An error in a user's own loss shows here, and not after a minute of compiling.
        self._learning.trace_update()
        # What acting is waiting for first: until then it pads every batch to the largest.
        for acting in self._system.acting:
            acting.compile_others()
        self._learning.compile_insertion(self._system.page)

    def _compile_update(self) -> None:
        # If insertion failed, the run ends.
        if self._insertion.exception() is None:
            _compile_update(self._system)

    def end_waits(self) -> None:
        """Wakes both threads for the last time; a compilation that has not started is dropped."""
        # What has started cannot be cancelled: XLA compiles to its end.
        self._update.cancel()
        channel = self._system.channel
        channel.limiter.close()
        channel.is_closed = True
        channel.wake_acting()

    @property
    def is_compiling(self) -> bool:
        """True until learning can do all of its work.

        True for good if it never will, because the run has ended or compilation failed: then the
        learning thread raises the error.
        """
        if not self._update.done() or self._update.cancelled():
            return True
        # `exception` of a future that is not done would wait, of a cancelled one raise.
        done = [each for each in (self._insertion, self._update) if each.done()]
        return any(not each.cancelled() and each.exception() is not None for each in done)

    @property
    def can_insert(self) -> bool:
        """True once insertion is compiled."""
        return self._insertion.done() and self._insertion.exception() is None

    @property
    def _own_steps(self) -> int:
        """Without those of other hosts."""
        return sum(self._totals.steps[: len(self._system.acting)])

    def _learn_once(self) -> None:
        """Does what of learning's work is compiled. Raises what compiling it has raised."""
        limiter = self._system.channel.limiter
        if not _is_compiled(self._insertion):
            self._learning.answer_requests()
            steps = self._own_steps - self._first_step
            # As if all that was acted had been inserted: the limiter holds acting back for it, too.
            limiter.holds(self._learning.sequences_of_shards(steps))
            limiter.vote_unable()
        elif not _is_compiled(self._update):
            # Pages leave the queue meanwhile, or acting would soon wait for room in it.
            self._learning.run_without_update()
            limiter.vote_unable()
        elif self._system.channel.is_complete:
            self._learning.settle()
        else:
            self._learning.run_once()


def _compile_update(system: System) -> None:
    # Refused before the first update runs, which may be an hour later.
    compiled = system.learning.compile_update()
    require_update_memory(compiled, system.scale, system.acting_bytes)


def _is_compiled(compilation: Future[None]) -> bool:
    # Waits for a moment. Raises what compiling has raised.
    if not compilation.done() or compilation.cancelled():
        wait([compilation], POLL_SECONDS)
        return False
    compilation.result()
    return True


class Alternating:
    """Acting and learning by turns in one thread: `synchronous` and `deterministic`.

    Each turn acts on the next batch, of training or evaluation, if there is one, and then learns
    what is owed. A batch of training has all slots that are played.

    `synchronous`: an update is owed once every slot has filled a page, and acting goes on with what
    was learned. Serving starts the pages of all slots together, and again when slots that were
    cut are played again, so nothing is open between two rounds: every time step was acted by the
    parameters that its round began with.

    `deterministic`: the number of a batch decides its random numbers, and nothing depends on time,
    threads, or which env server has which slot. So seed and environments decide every bit.
    """

    can_insert = True  # everything is compiled before the thread starts

    def __init__(self, system: System, name: str):
        """`name`: of the schedule, which the thread has too."""
        self._system = system
        self.is_compiling = True
        (self._acting,) = system.acting
        self._learning = system.learning
        self._may_owe = False  # updates, for what was acted last
        self.bodies: Mapping[str, Callable[[], object]] = {name: self._run_once}

    def warm_up(self) -> None:
        """Compiles everything."""
        # XLA compiles without the interpreter's lock: both sides are compiled at once.
        with ThreadPoolExecutor(1, thread_name_prefix="compile") as pool:
            update = pool.submit(_compile_update, self._system)
            self._acting.warm_up_largest()
            self._acting.compile_others()
            self._learning.compile_insertion(self._system.page)
            update.result()
        self.is_compiling = False

    def finish_compiling(self) -> None:
        """Nothing is left to wait for."""

    def end_waits(self) -> None:
        """Limiter and channel stay open: a piece of work that has started is finished."""
        self._system.channel.wake_acting()

    def _run_once(self) -> None:
        """Acts on the next batch, if one is due soon, or else takes an update that is owed for it.

        One piece of work, however many updates a turn owes: the watchdog sees each of them end, and
        the end of a run waits for one only.
        """
        # While one side works, the other one waits.
        if not self._may_owe:
            with self._learning.laps.during("learning_waits"):
                self._acting.run_once()
            self._may_owe = True
            return
        with self._acting.laps.during("acting_waits"):
            self._may_owe = self._learning.run_once()
            if self._may_owe:
                # At once: the next batch is acted with what was learned, and knows whether the
                # update was applied.
                self._learning.finish_update()
            elif self._system.channel.is_complete:  # after all that is owed was learned
                self._learning.settle()


Schedule: TypeAlias = Asynchronous | Alternating


def open_schedule(system: System, name: str) -> Schedule:
    """`learning.schedule` by its name."""
    return Asynchronous(system) if name == "asynchronous" else Alternating(system, name)


class Session:
    """The threads of a run, from `start` to `stop`. Owned by the main thread."""

    def __init__(self, config: Config, system: System, hub: Hub, metrics: Metrics):
        self._config, self.system, self._hub, self._metrics = config, system, hub, metrics
        # Of the system, whose counters other threads may read.
        self.acting, self.learning = system.acting[0], system.learning
        self.evaluator = self.acting.evaluator
        self.failed = threading.Event()  # set when a thread has died
        self._schedule = open_schedule(system, config.learning.schedule)
        peers = system.hosts.peers
        self.watchdog = Watchdog(
            functools.partial(peers.end_if_stuck, config.logging.stuck_seconds),
            is_compiling=lambda: self.is_compiling,
        )
        self._workers = [
            Worker(name, peers.blamed(body), self.failed, self.watchdog.heartbeat(name))
            for name, body in self._schedule.bodies.items()
        ]

    def start(self) -> None:
        """Compiles what must be compiled first, and starts the threads."""
        # First: compiling may hang, too.
        self.watchdog.start()
        # Looking for garbage in all that is traced would take a tenth of that time.
        gc.disable()
        try:
            self._schedule.warm_up()
        finally:
            gc.enable()
        for worker in self._workers:
            worker.start()

    @property
    def is_compiling(self) -> bool:
        """True while learning waits for its programs."""
        return self._schedule.is_compiling

    @property
    def failure(self) -> BaseException | None:
        """What a thread has died of."""
        return next((worker.failure for worker in self._workers if worker.failure), None)

    @property
    def num_updates(self) -> int:
        """Updates of this session that have run, applied or skipped."""
        return self.learning.num_applied + self.learning.num_skipped

    @property
    def has_live_evaluation(self) -> bool:
        """True if env servers play on evaluation slots."""
        return bool(self._hub.live_slots("evaluation").size)

    def raise_failure(self) -> None:
        """Raises what a thread has died of: a UserError as it is, any other as a defect of ours."""
        for worker in self._workers:
            if isinstance(worker.failure, UserError):
                raise worker.failure
            if worker.failure is not None:
                text = f"the thread {worker.name} died: {worker.failure}"
                raise RuntimeError(text) from worker.failure

    def stop(self) -> None:
        """Ends the threads after their present piece of work, as long as that may take.

        The watchdog ends the process if one of them hangs; a limit of its own could cost the last
        save after a long update. After a failure there is no last save, and the wait is short.
        """
        # All are asked before one is waited for: none starts another piece of work meanwhile.
        for worker in self._workers:
            worker.stop(0.0)
        self._schedule.end_waits()
        for worker in self._workers:
            worker.stop(GRACE_SECONDS if self.failed.is_set() else None)
        self.watchdog.stop()  # after the threads: until then one of them may hang
        if not self.failed.is_set():
            self.learning.finish_update()  # what is reported and saved knows whether it counts
            if self._schedule.can_insert:  # otherwise this thread would compile that, to end
                self.learning.insert_pages()
            self.learning.abandon_pages()

    def set_gauges(self) -> None:
        """Sets the metrics that are states rather than events."""
        system = self.system
        agent, decay_steps = system.agent, system.agent.exploration_decay_steps
        ends = np.asarray(agent.exploration(self._config.serving.training_slots))
        rungs = decayed(np.ones(len(ends)), ends, decay_steps, self.acting.training_steps)
        self._metrics.gauge("exploration_mean", float(np.mean(rungs)))
        if (live := self._hub.live_slots("training")).size:
            own = system.geometry.topology.own(over_slots(rungs))
            self._metrics.gauge("exploration_live_mean", float(np.mean(own[live])))
        for name, value in system.channel.limiter.now.metrics().items():
            self._metrics.gauge(name, value)
        self._metrics.gauge("replay_sequences", self.learning.num_sequences)
        self._metrics.gauge("replay_fill", self.learning.replay_fill)
        for account, rows in self.accounts().items():
            self._metrics.gauge(f"ledger/{account}", rows)

    def accounts(self, *, at_rest: bool = False) -> dict[str, int]:
        """Time steps in every account of the ledger; see `learner.serving.ledger`.

        Args:
          at_rest: as in `residues`.
        """
        # Replay first: it only holds what had been completed before.
        stored = self.learning.stored_rows
        abandoned = sum(self.acting.totals.abandoned_rows) + self.learning.abandoned_rows
        learned = self.learning.accounts()
        accounts = {
            **self._hub.ledger(),
            **learned,
            **self.acting.accounts(at_rest=at_rest),
            "stored": stored,
            "stale": self.learning.stale_rows,
            "abandoned": abandoned,
        }
        return dict.fromkeys(ACCOUNTS, 0) | accounts

    def residues(self, *, at_rest: bool = False) -> list[str]:
        """What the ledger does not explain, one a line; see `learner.serving.ledger`."""
        # `at_rest`: the session has stopped: nothing is on its way any more.
        # Read once: the equations are of one moment.
        accounts = self.accounts(at_rest=at_rest)
        of_kind = self.system.geometry.kind.at_rest
        equations = [*of_kind, *([QUEUED] if self.learning.accounts() else [])]
        broken = residues(accounts, equations if at_rest else ALWAYS)
        if accounts["stored"] > accounts.get("completed", 0):
            broken.append(f"ledger: stored {accounts['stored']}, more than were completed")
        return broken
