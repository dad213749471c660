"""The wire's benchmark: what it counts has crossed the wire."""

import pytest

from learner.extras.bench import wire
from learner.extras.bench.system import serve_fleet
from learner.extras.bench.wire import Messages, answer

TINY = Messages(num_envs=3, shape=(5,), dtype="uint8", target=0.5)
GROUPS = 2


@pytest.mark.slow
@pytest.mark.parametrize("local_link", [True, False])
def test_answered_messages_are_those_of_the_ledger(local_link: bool) -> None:
    with serve_fleet(wire.config(TINY, env_servers=1, local_link=local_link)) as served:
        assert [
            lease.holder.link is not None for lease in served.hub._serving.slots.leases.values()
        ] == [local_link]
        before = served.hub.ledger()
        assert before["accepted"] == GROUPS * 3 and before.get("answered", 0) == 0
        num_messages = sum(answer(served.hub) for _ in range(20))
        after = served.hub.ledger()
    assert after["answered"] == num_messages * 3 > 0
    # What came since then waits.
    assert after["accepted"] - after["answered"] <= GROUPS * 3
