"""What env servers report of earlier leases, to the real service: true, false, or another's."""

from pathlib import Path

import grpc
import numpy as np
import pytest

from learner.serving.ledger import ALWAYS, residues
from learner.serving.server import Service
from seedrl.wire.seedrl_pb2 import Sent
from tests.learner.serving.scripted_env_server import (
    FIRST,
    MID,
    Client,
    hello,
    next_batch,
    service_at,
    wait_for,
    wait_until_free,
)

pytestmark = pytest.mark.usefixtures("way")


def _play(service: Service, client: Client, num_steps: int) -> None:
    for sequence in range(num_steps):
        client.step(sequence, MID if sequence else FIRST)
        batch = next_batch(service)
        service.hub.answer(batch, np.zeros(len(batch.slots), np.int32))
        client.receive()


def _sent(client: Client, steps: int) -> list[Sent]:
    """What `client` would report if it had played only that."""
    size = len(client.groups[0].slots)
    return [Sent(lease=client.lease, num_envs=size, steps=steps, answered=steps)]


def test_env_servers_that_outlive_a_learner_are_new_to_the_next_one(tmp_path: Path) -> None:
    bind = f"unix:{tmp_path}/socket"
    first = service_at(bind, evaluation=0)
    first.start()
    clients = [Client(first.address).shake_hands(num_envs=1) for _ in range(4)]
    reports = []
    for number, client in enumerate(clients):
        _play(first, client, num_steps=number + 1)
        reports.append(_sent(client, number + 1))
        client.leave()
    first.stop(grace_seconds=0.0)

    # A new run with the same seed on the same address; they return in another order.
    second = service_at(bind, evaluation=0)
    second.start()
    clients = []
    for report in reversed(reports):
        clients.append(Client(second.address).shake_hands(num_envs=1, sent=report))
    for client in clients:
        _play(second, client, num_steps=2)
    reports = [_sent(client, 2) for client in clients]
    assert len(second.hub.connections()) == 4
    assert "sent" not in second.hub.ledger()
    for client in clients:
        client.leave()
    wait_until_free(second, 4)
    with Client(second.address) as heir:
        heir.shake_hands(num_envs=1, sent=[sent for report in reports for sent in report])
    ledger = second.hub.ledger()
    assert (ledger["sent"], ledger["seen"], ledger.get("disputed", 0)) == (8, 8, 0)
    assert residues(ledger, ALWAYS) == []
    second.stop(grace_seconds=0.0)


@pytest.mark.parametrize("steps", [0, 2, 4, 2**63])
def test_a_false_report_ends_its_own_connection_and_is_counted(
    unix_service: Service, steps: int
) -> None:
    service = unix_service
    with Client(service.address) as bystander, Client(service.address) as liar:
        bystander.shake_hands(num_envs=2)
        liar.shake_hands(num_envs=2)
        _play(service, liar, num_steps=3)
        report = _sent(liar, steps)
        liar.leave()
        wait_until_free(service, 4)
        with Client(service.address) as again:
            again.send(hello(sent=report))
            code, details = again.end()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert details.startswith("expected a true report of sent steps; lease of h:7: group 0: ")
        _play(service, bystander, num_steps=2)
        ledger = service.hub.ledger()
        assert ledger["disputed"] == 3 * len(liar.groups[0].slots)
        assert residues(ledger, ALWAYS) == []
        # What was disputed is done with: the connection after that is admitted.
        with Client(service.address) as reformed:
            reformed.shake_hands(sent=report)
            wait_for(service, lambda: len(service.hub.connections()) == 2)


def test_who_guesses_a_lease_ends_nobody(unix_service: Service) -> None:
    service = unix_service
    with Client(service.address) as victim, Client(service.address) as attacker:
        victim.shake_hands(num_envs=2)
        guesses = [*range(1, 100), victim.lease + 1, victim.lease ^ 1 << 63]
        attacker.shake_hands(sent=[Sent(lease=key % 2**64, steps=5) for key in guesses])
        _play(service, victim, num_steps=2)
        assert residues(service.hub.ledger(), ALWAYS) == []
