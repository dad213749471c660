"""Peers that flood, lie, or send nothing, beside an honest env server: they harm themselves alone.

The service is a process of its own, the honest env server another one; the hostile peers are in
this one, over real sockets. What is asserted of speed leaves room for a busy machine.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.patience import wait_until
from tests.system import attacks
from tests.system.attacks import ASSIGNED, CUT, LIMIT, MANY, MIB, Attack, End, hello, run
from tests.system.served_process import Served, env_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_OURS = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE", CUT}
_ENVS = 4
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With an honest env server that steps."""
    folder = tmp_path_factory.mktemp("served")
    with (
        Served(folder, "127.0.0.1:0", num_slots=8) as served,
        env_server(served.seen.address, _ENVS),
    ):
        wait_until(lambda: served.seen.rows > 50)
        yield served


def _beside(served: Served, attack: Callable[[], list[End]], record: Record) -> Counter[str]:
    """Runs an attack; how its attempts ended. The honest env server goes on."""
    wait_until(lambda: served.seen.live == _ENVS)
    before, undisturbed = served.seen, served.rate(0.5)
    start = served.seen
    ends = attack()
    last = served.seen
    wait_until(lambda: served.seen.seconds > last.seconds)
    after = served.seen
    beside = (last.rows - start.rows) / max(last.seconds - start.seconds, 1e-9)
    codes = Counter(end.code for end in ends)
    record("rate_of_others", round(beside / undisturbed, 2))
    record("rss_mib", round(after.rss_mib - before.rss_mib, 1))
    record("codes", " ".join(f"{code}:{number}" for code, number in codes.items()))
    assert max(end.seconds for end in ends) < 15.0
    assert after.pid == before.pid and served.process.poll() is None
    assert after.broken == []
    assert served.rate(0.5) > undisturbed / 4
    grown = after.rss_mib - before.rss_mib
    assert grown <= 2 * LIMIT / MIB * len(ends) + 32
    return codes


@pytest.mark.parametrize("kind", attacks.kinds())
def test_a_peer_that_attacks_harms_itself_alone(
    served: Served, kind: str, record_property: Record
) -> None:
    address, attack = served.seen.address, attacks.kinds()[kind]()
    codes = _beside(served, lambda: run(attacks.attack(address, attack)), record_property)
    assert set(codes) <= _OURS | {ASSIGNED}, codes


def test_connections_without_a_stream_are_closed(served: Served, record_property: Record) -> None:
    address = served.seen.address
    codes = _beside(served, lambda: attacks.idle_sockets(address, MANY), record_property)
    assert codes == {"closed": MANY}


def test_a_storm_of_env_servers_all_get_an_answer(tmp_path: Path) -> None:
    slots, number = 64, 80
    attack = Attack(number, lambda _: [hello()], is_assigned=True)
    with Served(tmp_path, num_slots=slots) as served:
        codes = Counter(end.code for end in run(attacks.attack(served.seen.address, attack)))
        assert set(codes) <= {ASSIGNED, "RESOURCE_EXHAUSTED"}
        assert codes[ASSIGNED] >= slots / 2  # some leave, and others take their places
        wait_until(lambda: served.seen.live == 0)
        assert served.seen.broken == []
