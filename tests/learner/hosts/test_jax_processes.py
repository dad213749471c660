"""How a host joins jax's processes."""

from types import SimpleNamespace
from typing import Any

import pytest

from learner.hosts import jax_processes, waiting
from learner.hosts.place import Place
from tests.patience import wait_until


def test_a_coordinator_of_jax_that_is_not_reached_is_named_while_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "_REPORT_SECONDS", 0.0)
    lines: list[str] = []

    def initialize(address: str, **_: Any) -> None:
        wait_until(lambda: lines, "the line")
        raise ConnectionError(address)

    jax = SimpleNamespace(
        config=SimpleNamespace(update=lambda name, value: None),
        distributed=SimpleNamespace(initialize=initialize),
    )
    monkeypatch.setattr(jax_processes, "jax", jax)
    with pytest.raises(ConnectionError, match="a:43121"):
        jax_processes.join(Place("a:8690", 2, 1), "a:43121", lines.append)
    assert lines == [
        "waits for all hosts at jax's coordinator, a:43121, for 120 s at most; is that port closed "
        "between hosts?"
    ]
