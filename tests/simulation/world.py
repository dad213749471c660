"""A whole distributed system in one thread: real code at both ends, everything between simulated.

One seed is one history: `World(seed, CoreLearner).run()` gives the same every time.
"""

import random
from collections.abc import Callable
from typing import Any

from envs_server.options import Options
from learner.serving.hub import EndError
from learner.serving.ledger import ALWAYS, residues
from tests.simulation import faults
from tests.simulation.env_server import KEEPALIVE_SECONDS, Process, SimulatedConnection
from tests.simulation.learner import (
    LENGTHS,
    NUM_SLOTS,
    Learner,
    settle,
)
from tests.simulation.timeline import Timeline
from tests.system.streams import Streams

# Factories that env servers may build.
_ALLOWED = ("seedrl_plugin.*",)

NUM_ACTIONS = 5
_ACT_SECONDS = 0.0005
_LEARN_SECONDS = 0.003
_SAVE_SECONDS = 0.02
_LEDGER_SECONDS = 0.01
# After the last fault: in one of these periods, one after another, everybody must be back.
_RECOVERY_PERIODS, _PERIOD_SECONDS = 5, 0.03
# For the last messages to arrive, and the last batch to be answered.
_REST_SECONDS = 0.02


class World:
    """Env servers, a learner, and what lies between them.

    Attributes:
      random: decides everything.
      faults: what strikes now.
      learner: the one that lives.
      num_actions: of the environments of even seeds; those of odd ones take real numbers (0).
      oracle: knows what must have happened; `broken` is the result.
    """

    def __init__(
        self,
        seed: int,
        build: Callable[["World", int, Any], Learner],
        *,
        seconds: float = 0.08,
        calm_seconds: float = 0.0,
        drawn: faults.Faults | None = None,
    ):
        self.seed = seed
        self.random = random.Random(seed)
        self.timeline = Timeline(self.random)
        self.num_actions = 0 if seed % 2 else NUM_ACTIONS
        self.oracle = Streams(LENGTHS, self.num_actions)
        self.faults = faults.draw(self.random) if drawn is None else drawn
        self.drawn = self.faults
        self.connections: list[SimulatedConnection] = []
        self._build = build
        self._seconds, self._calm_seconds = seconds, calm_seconds
        self._session = 1
        self._saved: Any = None
        self._is_computing = False
        self.learner = build(self, 1, None)
        self._processes = [
            Process(self, number, self._options()) for number in range(self.random.randint(2, 3))
        ]

    def _options(self) -> Options:
        num_envs, groups = self.random.randint(1, 5), self.random.randint(1, 3)
        return Options(learner="unix:/none", num_envs=num_envs, groups=groups, allow_env=_ALLOWED)

    def run(self) -> list[str]:
        """Lives through the history of this seed; what went wrong, one a line."""
        self.begin()
        for name in ("kill", "freeze", "cut", "crash"):
            for number in range(len(self._processes)):
                self._strike_again(name, number)
        self._strike_again("restart_learner", 0)
        self.timeline.run(self._seconds)
        return self.end()

    def begin(self) -> None:
        """Starts everybody."""
        for process in self._processes:
            self._after(_LEARN_SECONDS, "starts", process.connect)
        self._repeat(_ACT_SECONDS, "acts", self._act)
        self._repeat(_LEARN_SECONDS, "learns", self._learn)
        self._repeat(_SAVE_SECONDS, "saves", self._save)
        self._repeat(_LEDGER_SECONDS, "looks at the ledger", self._check_ledger)

    def end(self) -> list[str]:
        """No more faults: everybody must recover; then stops all, and looks at what is left."""
        self.faults = faults.Faults()
        self.timeline.run(self.timeline.now + self._calm_seconds)
        for _ in range(_RECOVERY_PERIODS):
            if not (broken := self._progress()):
                break
        self.oracle.broken += broken
        self._come_to_rest()
        return self.oracle.broken

    @property
    def num_sessions(self) -> int:
        """Learners so far."""
        return self._session

    def strikes(self, probability: float) -> bool:
        """Whether a fault of this probability strikes now."""
        return probability > 0 and self.random.random() < probability

    def _after(self, mean_seconds: float, name: str, action: Callable[[], None]) -> None:
        self.timeline.after(self.random.expovariate(1 / mean_seconds), name, action)

    def _repeat(self, mean_seconds: float, name: str, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self._after(mean_seconds, name, again)

        self._after(mean_seconds, name, again)

    def _act(self) -> None:
        learner = self.learner
        if self._is_computing:
            return
        if not learner.begin():
            self._flush()
            return

        def finish() -> None:
            self._is_computing = False
            if learner is self.learner:
                learner.finish()
                self._flush()

        self._is_computing = True
        self._after(_ACT_SECONDS, "answers", finish)

    def _flush(self) -> None:
        self.connections = [each for each in self.connections if each.is_open]
        for connection in self.connections:
            connection.flush()

    def _learn(self) -> None:
        self.learner.learn()

    def _save(self) -> None:
        if not self.strikes(self.faults.fail_save):
            self._saved = self.learner.save()

    def _check_ledger(self) -> None:
        self.oracle.broken += residues(self.learner.accounts(), ALWAYS)

    def _strike_again(self, name: str, number: int) -> None:
        mean_seconds = getattr(self.drawn, name)
        if not mean_seconds:
            return

        def strike() -> None:
            if getattr(self.faults, name):
                self.strike(name, number)
                self._strike_again(name, number)

        self._after(mean_seconds, name, strike)

    def strike(self, name: str, number: int = 0) -> None:
        """Makes a fault happen now, to process `number` if it is one of a process."""
        process = self._processes[number % len(self._processes)]
        if name == "restart_learner":
            self._restart_learner()
        elif name == "kill":
            process.kill()
        elif name == "crash":
            process.crash()
        elif name == "freeze":
            process.freeze()
        elif process.connection is not None:
            process.connection.cut()

    def _restart_learner(self) -> None:
        self._session += 1
        self.learner = self._build(self, self._session, self._saved)
        self._is_computing = False
        for process in self._processes:
            if process.connection is not None:
                seconds = self.random.uniform(0, KEEPALIVE_SECONDS)
                self.timeline.after(seconds, "sees the end", process.connection.close_here)

    def env_server_refused(self, reason: str) -> None:
        """An env server found a message of the learner wrong: only the transport can do that."""
        if not self.drawn.duplicate:
            self.oracle.broken.append(f"an env server refused: {reason}")

    def ended_with(self, error: EndError) -> None:
        """The learner ended a stream, for a reason that must have a fault behind it."""
        fault_of = {
            "slots are leased": 1.0,
            "slots are about to be freed": 1.0,
            "slots are rebalanced": 1.0,
            "a step was doubled": self.drawn.duplicate,
            "expected wait for actions": self.drawn.duplicate,
            "expected ready or refusal, got hello": self.drawn.duplicate,
            "expected step, got ready": self.drawn.duplicate,
            "expected step, got hello": self.drawn.duplicate,
            "FromEnvServer message": self.drawn.truncate,
            "the lease has ended": 1.0,
            "expected a true report of sent steps": self.drawn.crash,
        }
        if not any(rate for text, rate in fault_of.items() if text in error.details):
            self.oracle.broken.append(f"the learner ended a stream: {error.details}")

    def _progress(self) -> list[str]:
        """A period; why not every slot that can be leased is, and gets ahead, all of the time."""
        slots = self.learner.hub._serving.slots
        before, epochs = slots.rows.copy(), slots.epochs.copy()
        self.timeline.run(self.timeline.now + _PERIOD_SECONDS)
        offered = sum(process.options.num_envs for process in self._processes)
        live = self.learner.hub.live_slots("training").tolist()
        num_live = len(live) + len(self.learner.hub.live_slots("evaluation"))
        broken = []
        if num_live < min(offered, NUM_SLOTS):
            broken.append(f"{num_live} slots are leased, {offered} were offered")
        if behind := [slot for slot in live if slots.rows[slot] == before[slot]]:
            broken.append(f"slots {behind} do not get ahead")
        if (slots.epochs != epochs).any():
            broken.append("a stream broke although nothing was wrong")
        return broken

    def _come_to_rest(self) -> None:
        for process in self._processes:
            process.stop()
        self.timeline.run(self.timeline.now + _REST_SECONDS)
        if self._is_computing:
            self.oracle.broken.append("a batch is never answered")
        self.learner.learn()
        self.oracle.broken += settle(self.learner)
        self.oracle.broken += self.learner.check()
