"""What is written of a run that is under way, and who it waits for."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learner.reporting.env_servers.attendance import EnvServers
from learner.reporting.events import Events
from learner.reporting.metrics import Metrics
from learner.reporting.status import EnvServerStatus, Slots, Status
from learner.session import live_status
from learner.session.live_status import LiveStatus, waited_for
from seedrl.config_file import load
from tests.learner.reporting.test_panel import env_server
from tests.patience import SECONDS


@pytest.mark.parametrize(
    ("servers", "text"),
    [
        ([], "no env server is connected"),
        ([env_server("vm:1", state="left")], "no env server is connected"),
        ([env_server("vm:1", state="building")], "vm:1 builds its environments"),
        (
            [env_server(f"vm:{n}", state="building") for n in range(5)],
            "vm:0, vm:1, vm:2 and 2 more build their environments",
        ),
        ([env_server("vm:1", training_slots=0)], "no connected env server has training slots"),
        ([env_server("vm:1", waiting_seconds=5.4)], "vm:1 has sent no step for 5 s"),
        ([env_server("vm:1", waiting_seconds=5.4), env_server("vm:2")], ""),
        (
            [env_server("vm:1", waiting_seconds=5.4), env_server("vm:2", state="building")],
            "vm:1 has sent no step for 5 s",
        ),
    ],
)
def test_who_is_waited_for_is_said_in_words(servers: list[EnvServerStatus], text: str) -> None:
    assert waited_for(servers) == text


class Reported:
    """A LiveStatus on fakes; `seen` are the statuses that were shown."""

    def __init__(self, folder: Path, events: Events | None = None) -> None:
        self.folder = folder
        self.seen: list[Status] = []
        self.is_shown = threading.Event()
        self.metrics = Metrics(folder)
        self.events = events or Events(folder, lambda event: None)
        self.live = LiveStatus(
            load("cartpole_r2d2"),
            "mine",
            folder,
            events=self.events,
            metrics=self.metrics,
            show=self._show,
        )

    def close(self) -> None:
        self.live.close()
        self.events.close()
        self.metrics.close()

    def _show(self, status: Status) -> None:
        self.seen.append(status)
        self.is_shown.set()

    def saved(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "status.json").read_text())
        return found


@pytest.fixture
def reported(tmp_path: Path) -> Iterator[Reported]:
    made = Reported(tmp_path)
    yield made
    made.close()


def test_the_status_is_written_as_soon_as_there_is_a_run(reported: Reported) -> None:
    assert reported.is_shown.wait(SECONDS)
    saved = reported.saved()
    assert (saved["state"], saved["config"], saved["total_steps"]) == ("starting", "mine", 10**6)


def test_states_follow_one_another(reported: Reported) -> None:
    live = reported.live
    servers = EnvServers((env_server("vm:1"),), Slots(total=32, live=32), Slots(total=100, live=1))
    evaluator = SimpleNamespace(is_running=True, is_confirming=False)
    session: Any = SimpleNamespace(
        acting=SimpleNamespace(training_steps=5),
        learning=SimpleNamespace(updates=1),
        evaluator=evaluator,
        is_compiling=True,
        source=None,
    )

    def state() -> str:
        return live.now().state

    states = [state()]
    live.address = "unix:/there"
    states.append(state())
    live._env_servers = servers
    states.append(state())
    live.session = session
    states.append(state())
    session.is_compiling = False
    states.append(state())
    evaluator.is_confirming = True
    states.append(state())
    live.stopping("all steps taken")
    assert [*states, state()] == [
        "starting",
        "waiting",
        "compiling",
        "compiling",
        "training",
        "evaluating",
        "stopping",
    ]
    live.close()
    assert (reported.saved()["state"], reported.saved()["reason"]) == (
        "finished",
        "all steps taken",
    )


def test_what_was_learned_before_a_run_is_resumed_is_no_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events(tmp_path, lambda event: None, env_steps=5000)
    said: list[str] = []
    monkeypatch.setattr(events, "say", lambda kind, text, **fields: said.append(kind))
    reported = Reported(tmp_path, events)
    live = reported.live
    live.close()  # no thread looks beside this one
    assert live.now().env_steps == 5000
    session: Any = SimpleNamespace(
        acting=SimpleNamespace(training_steps=5000),
        learning=SimpleNamespace(updates=70),
        evaluator=SimpleNamespace(is_running=True, is_confirming=False),
        is_compiling=True,
    )
    live.session, events.count_steps = session, lambda: session.acting.training_steps
    resumed = live.now()
    assert (resumed.env_steps_per_second, resumed.updates_per_second) == (0.0, 0.0)
    session.acting.training_steps, session.learning.updates = 5001, 71
    moved = live.now()
    assert moved.env_steps_per_second == moved.updates_per_second > 0.0
    live._still.look(5000, live._still._moved + 11.0, live.holdup)
    assert said == ["waiting"]
    reported.close()


def test_what_is_built_and_compiled_for_env_servers_that_have_come_is_named(
    reported: Reported,
) -> None:
    live = reported.live
    assert live.holdup() == "no env server is connected"
    live._env_servers = EnvServers((env_server("vm:1"),))
    before = live.holdup()  # there is no session yet
    session: Any = SimpleNamespace(
        acting=SimpleNamespace(training_steps=5),
        learning=SimpleNamespace(updates=1),
        evaluator=SimpleNamespace(is_running=True, is_confirming=False),
        is_compiling=True,
        source=None,
    )
    live.session = session
    assert before == "agent and replay are being built"
    assert live.holdup().startswith("learning is being compiled, ")
    session.is_compiling = False
    assert live.holdup() == "acting waits for learning, as the replay ratio wants"


def test_slots_are_metrics(reported: Reported) -> None:
    servers = EnvServers(
        (env_server("vm:1"), env_server("vm:2", state="left")),
        Slots(total=32, live=16, waiting=4, hung=2),
        Slots(total=100, live=50, waiting=1),
        failures=7,
        quarantined=3,
        refused=9,
    )
    reported.live._gauges(servers)
    values = reported.metrics.flush(env_steps=0, updates=0)
    names = ("env_servers", "slots_live", "slots_waiting", "slots_hung", "slots_quarantined")
    assert [values[name] for name in names] == [1, 66, 5, 2, 3]
    assert values["slots_unfilled"] == 66
    assert (values["environment_failures"], values["connections_refused"]) == (7, 9)


def test_a_status_that_cannot_be_made_does_not_end_the_run(
    reported: Reported, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_status, "_INTERVAL_SECONDS", 0.01)

    class BrokenHub:
        has_been_asked = threading.Event()

        def env_servers(self) -> EnvServers:
            self.has_been_asked.set()
            raise RuntimeError("a defect of ours")

    reported.live.hub = hub = BrokenHub()  # type: ignore[assignment]
    assert hub.has_been_asked.wait(SECONDS)
    reported.live.hub = None
    reported.is_shown.clear()
    assert reported.is_shown.wait(SECONDS)
    assert "a defect of ours" in caplog.text
