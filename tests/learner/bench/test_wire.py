"""The wire's benchmark: what it counts has crossed the wire."""

import math

import pytest

from learner.bench import wire
from learner.bench.measure.interleave import Pace
from learner.bench.rigs.served_fleet import ServedFleet
from learner.bench.wire import Answering, Messages

TINY = Messages(num_envs=3, shape=(5,), dtype="uint8", target=0.5)
GROUPS = 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("local_link", "name", "way"),
    [(True, "wire", "links of one host"), (False, "wire over gRPC", "gRPC")],
)
def test_a_result_is_complete(local_link: bool, name: str, way: str) -> None:
    result = wire.result(TINY, Pace(rounds=2, seconds=0.05), env_servers=1, local_link=local_link)
    # A header of 16, three sections of scalars, and the observations, each padded to 8; then tag
    # and length. Answers: 16 + 12, padded to 32, and the same.
    assert result.name == f"{name}: 74 bytes"
    assert result.conditions.messages == f"74 bytes each, answers of 34, over {way}"
    assert math.isfinite(result.ratio.highest) and result.ratio.lowest > 0
    assert result.details["MB/s"] > 0
    assert result.target == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("local_link", [True, False])
def test_answered_messages_are_those_of_the_ledger(local_link: bool) -> None:
    with ServedFleet(wire.config(TINY, env_servers=1, local_link=local_link)) as served:
        assert [
            connection.transport.link is not None for connection in served.hub.connections()
        ] == [local_link]
        answering = Answering(served.hub)
        before = served.hub.ledger()
        assert before["accepted"] == GROUPS * 3 and before.get("answered", 0) == 0
        assert answering.rate(0.05) > 0
        after = served.hub.ledger()
    assert after["answered"] == answering.num_messages * 3 > 0
    # It stopped: what came since then waits.
    assert after["accepted"] - after["answered"] <= GROUPS * 3
