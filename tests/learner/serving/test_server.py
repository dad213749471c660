"""Steps, actions and the end of the real service over real gRPC, or over a link."""

from pathlib import Path

import grpc
import numpy as np
import pytest

from learner.serving.server import Service
from seedrl.errors import AddressInUseError
from seedrl.specs import DiscreteSpec
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.framing import ActionsPayload
from seedrl.wire.payload import split
from tests.learner.serving.scripted_env_server import (
    FIRST,
    LAST,
    MID,
    SECONDS,
    SPEC,
    Client,
    next_batch,
    service_at,
    wait_for,
    wait_until_free,
)
from tests.patience import wait_until

pytestmark = pytest.mark.usefixtures("way")


def test_actions_answer_the_steps_of_the_group_they_belong_to(service: Service) -> None:
    layout = ActionLayout(DiscreteSpec(1000), 2)
    with Client(service.address) as client:
        client.shake_hands(num_envs=6, num_groups=2)
        for sequence, step_type in enumerate([FIRST, MID, LAST, FIRST]):
            for group in (0, 1):
                client.step(sequence, step_type, group, mark=10 * sequence + group)
            seen: dict[int, float] = {}
            while len(seen) < 2:
                batch = next_batch(service)
                for item in batch.pending:
                    seen[item.group.number] = item.timestep.observation["a"][0, 0]
                service.hub.answer(batch, 100 * sequence + batch.slots)
            assert seen == {0: 10 * sequence, 1: 10 * sequence + 1}
            answers = {}
            while len(answers) < 2:  # in one message, if they were computed together
                for _, data in split(client.receive(), [layout] * 2):
                    header, actions = layout.unpack(data)
                    assert header.sequence == sequence
                    answers[header.group] = actions.tolist()
            expected = [100 * sequence + slot for slot in range(4)]
            assert answers == {0: expected[:2], 1: expected[2:]}
        client.step(0, FIRST, group=2)
        batch = next_batch(service, "evaluation")
        assert (batch.role, batch.slots.tolist()) == ("evaluation", [4, 5])
        service.hub.answer(batch, np.zeros(2, np.int32))
        assert isinstance(client.receive(), ActionsPayload)
    ledger = service.hub.ledger()
    assert (ledger["accepted"], ledger["answered"], ledger["completed"]) == (18, 18, 16)


def test_a_disconnect_frees_the_slots_and_cuts_the_streams(service: Service) -> None:
    first = Client(service.address).shake_hands(num_envs=6)
    seeds = [list(group.seeds) for group in first.groups]
    first.step(0, FIRST)
    batch = next_batch(service)
    service.hub.answer(batch, np.zeros(len(batch.slots), np.int32))
    first.receive()
    first.step(1, MID)
    wait_for(service, lambda: service.hub.ledger().get("accepted") == 8)
    assert service.hub.take_ended() == []
    first.leave()
    wait_until_free(service, 6)
    ended = service.hub.take_ended()
    assert set(batch.streams.tolist()) < set(ended)
    assert len(set(ended)) == len(ended) == 6
    assert service.hub.take_ended() == []
    ledger = service.hub.ledger()
    assert (ledger["struck"], ledger["discarded"], ledger["partial"]) == (4, 4, 0)
    assert service.hub.live_slots("training").tolist() == []
    with Client(service.address) as second:
        second.shake_hands(num_envs=6)
        assert not {s for group in seeds for s in group} & {
            seed for group in second.groups for seed in group.seeds
        }
        second.step(0, FIRST)
        batch = next_batch(service)
        assert not set(batch.streams.tolist()) & set(ended)
        assert batch.positions.tolist() == [0] * 4
        assert service.hub._serving.slots.epochs.tolist() == [2] * 6


def test_every_env_server_hears_that_training_is_over(service: Service) -> None:
    with Client(service.address) as one, Client(service.address) as other:
        for client in (one, other):
            client.shake_hands()
        one.step(0, FIRST)
        batch = next_batch(service)
        service.hub.answer(batch, np.zeros(len(batch.slots), np.int32))
        service.finish("it is over")
        assert isinstance(one.receive(), ActionsPayload)  # what was on its way still arrives
        for client in (one, other):
            assert client.receive().finish.reason == "it is over"
            assert client.end()[0] == grpc.StatusCode.OK


def test_a_second_learner_on_the_address_is_refused_and_harms_nobody(service: Service) -> None:
    second = service_at(service.address)
    with pytest.raises(AddressInUseError, match=f"cannot serve on {service.address}"):
        second.start()
    second.stop(grace_seconds=0.0)
    with Client(service.address) as client:
        client.shake_hands().step(0, FIRST)
        assert service.hub.wait_for_spec(SECONDS) == SPEC


def test_a_socket_path_can_be_served_again_after_a_stop(tmp_path: Path) -> None:
    bind = f"unix:{tmp_path}/socket"
    first = service_at(bind)
    first.start()
    first.stop(grace_seconds=0.0)
    service = service_at(bind)
    with Client(service.start()) as client:
        client.shake_hands().step(0, FIRST)
        assert service.hub.wait_for_spec(SECONDS) == SPEC
    service.stop(grace_seconds=0.0)


def test_a_watch_that_fails_can_be_seen(
    unix_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a stream")

    assert unix_service.failure is None
    monkeypatch.setattr(unix_service, "_hold_to_deadlines", fail)
    with Client(unix_service.address):
        wait_until(lambda: isinstance(unix_service.failure, KeyError))
