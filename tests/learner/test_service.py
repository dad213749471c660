"""The real service over real gRPC; the env server is a script."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from learner.address import AddressLock
from learner.service import Service
from seedrl.errors import AddressInUseError
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.wire import seedrl_pb2, version
from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    ToLearner,
)
from seedrl.wire.payload import unpack_actions
from tests.learner.scripted_env_server import (
    FIRST,
    LAST,
    MID,
    SECONDS,
    SPEC,
    Client,
    hello,
    next_batch,
    ready,
    served,
    service_at,
    wait_for,
    wait_until_free,
)


@pytest.fixture(autouse=True, params=["stream", "link"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds whichever way messages take."""
    monkeypatch.setattr(Client, "offers_link", request.param == "link")


@pytest.fixture(params=["unix", "tcp"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with served(f"unix:{tmp_path}/socket" if request.param == "unix" else "127.0.0.1:0") as service:
        yield service


@pytest.fixture
def unix_service(tmp_path: Path) -> Iterator[Service]:
    with served(f"unix:{tmp_path}/socket") as service:
        yield service


def test_the_handshake_says_what_to_build_and_leases_slots(service: Service) -> None:
    with Client(service.address) as client:
        client.send(hello(num_envs=6, num_groups=2))
        assign = client.receive().assign
        built = assign.environment
        assert (built.id, built.arguments) == ("Some-v0", '{"x": 1}')
        assert (list(built.wrappers), built.vectorization) == (["m:w"], "sync")
        assert [list(group.slots) for group in assign.groups] == [[0, 1], [2, 3], [4, 5]]
        assert [group.evaluation for group in assign.groups] == [False, False, True]
        seeds = [seed for group in assign.groups for seed in group.seeds]
        assert len(set(seeds)) == 6
        assert max(seeds) < 2**31
        assert service.lobby.wait_for_spec(0.0) is None
        client.send(ready())
        assert service.lobby.wait_for_spec(SECONDS) == SPEC
        assert service.lobby.live_slots(evaluation=False).tolist() == [0, 1, 2, 3]
        assert service.lobby.live_slots(evaluation=True).tolist() == [4, 5]


def test_actions_answer_the_steps_of_the_group_they_belong_to(service: Service) -> None:
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
                service.lobby.answer(batch, 100 * sequence + batch.slots)
            assert seen == {0: 10 * sequence, 1: 10 * sequence + 1}
            answers = {}
            for _ in range(2):
                header, actions = unpack_actions(client.receive().data, 2)
                assert header.sequence == sequence
                answers[header.group] = actions.tolist()
            expected = [100 * sequence + slot for slot in range(4)]
            assert answers == {0: expected[:2], 1: expected[2:]}
        client.step(0, FIRST, group=2)
        batch = next_batch(service, evaluation=True)
        assert (batch.evaluation, batch.slots.tolist()) == (True, [4, 5])
        service.lobby.answer(batch, np.zeros(2, np.int32))
        assert isinstance(client.receive(), ActionsPayload)
    ledger = service.lobby.ledger()
    assert (ledger["accepted"], ledger["answered"], ledger["completed"]) == (18, 18, 16)


def test_another_major_version_is_told_to_upgrade(service: Service) -> None:
    with Client(service.address) as client:
        client.send(hello(major=version.MAJOR + 1))
        code, details = client.end()
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert f"expected wire version {version.MAJOR}.x, got {version.MAJOR + 1}." in details
    wait_until_free(service, 6)


def test_another_environment_is_refused_field_by_field(unix_service: Service) -> None:
    service = unix_service
    other = EnvSpec({"a": ArraySpec((3,), "float32"), "c": ArraySpec((), "int8")}, num_actions=4)
    with Client(service.address) as first, Client(service.address) as second:
        first.shake_hands()
        assert service.lobby.wait_for_spec(SECONDS) == SPEC
        second.send(hello())
        second.receive()
        second.send(ready(other))
        code, details = second.end()
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        assert details == (
            "this environment differs from the one that the learner trains on: "
            "observation.a: expected float32[2], got float32[3]; "
            "observation.b: expected uint8[], got nothing; "
            "observation.c: expected nothing, got int8[]; "
            "num_actions: expected 3, got 4"
        )
        wait_until_free(service, 4)
        assert service.lobby.wait_for_spec(0.0) == SPEC


def test_the_spec_of_a_checkpoint_holds_for_the_first_env_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = EnvSpec(ArraySpec((9,), "uint8"), num_actions=3)
    service = service_at(f"unix:{tmp_path}/socket", spec=spec)
    with Client(service.start()) as client:
        client.shake_hands()
        code, details = client.end()
    assert not service.lobby.wait_for_agreement(SECONDS)
    service.stop(grace_seconds=0.0)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "observation: expected uint8[9], got nothing" in details
    refusal = service.lobby.refusal
    assert refusal is not None
    assert refusal.startswith("env server h:7 has another environment than the checkpoint: observ")
    assert refusal.endswith("; restore the config or start a new workdir")
    # Whoever waits for the spec tells it: it must not be said twice.
    assert caplog.records == []


def test_the_spec_of_a_checkpoint_waits_for_an_env_server_that_agrees(tmp_path: Path) -> None:
    service = service_at(f"unix:{tmp_path}/socket", spec=SPEC)
    with Client(service.start()) as client:
        assert service.lobby.wait_for_spec(0.0) == SPEC
        assert not service.lobby.wait_for_agreement(0.0)
        client.shake_hands()
        assert service.lobby.wait_for_agreement(SECONDS)
    assert service.lobby.refusal is None
    service.stop(grace_seconds=0.0)


def test_a_refusal_is_kept_and_frees_the_slots(unix_service: Service) -> None:
    service = unix_service
    assert service.lobby.refusal is None
    with Client(service.address) as client:
        client.send(hello())
        client.receive()
        refusal = seedrl_pb2.Refusal(reason="no such environment")
        client.send(seedrl_pb2.FromEnvServer(refusal=refusal))
        assert client.end() == (grpc.StatusCode.FAILED_PRECONDITION, "no such environment")
    assert service.lobby.wait_for_spec(SECONDS) is None
    assert service.lobby.refusal == "env server h:7 refuses: no such environment"
    wait_until_free(service, 6)


def test_env_servers_beyond_the_slots_are_sent_away_at_once(unix_service: Service) -> None:
    service = unix_service
    with Client(service.address) as first:
        first.shake_hands(num_envs=100)
        assert sum(len(group.slots) for group in first.groups) == 6
        clients = [Client(service.address) for _ in range(5)]
        for client in clients:
            client.send(hello())
        ends = [client.end() for client in clients]
        for client in clients:
            client.leave()
    assert ends == [(grpc.StatusCode.RESOURCE_EXHAUSTED, "all 6 slots are leased")] * 5


def _garbage(client: Client) -> None:
    client.send(StepPayload(b"x" * 40))


def _wrong_group(client: Client) -> None:
    client.groups = [*client.groups, client.groups[0]]
    client.step(0, FIRST, group=1)


def _wrong_sequence(client: Client) -> None:
    client.step(5, FIRST)


def _not_first(client: Client) -> None:
    client.step(0, MID)


def _two_in_flight(client: Client) -> None:
    client.step(0, FIRST)
    client.step(1, MID)


def _not_finite(client: Client) -> None:
    client.step(0, FIRST, mark=float("nan"))


def _hello_again(client: Client) -> None:
    client.send(hello())


@pytest.mark.parametrize(
    ("break_a_rule", "message"),
    [
        (_garbage, "expected group < 1, got"),
        (_wrong_group, "expected group < 1, got 1"),
        (_wrong_sequence, "expected sequence 0, got 5"),
        (_not_first, "expected FIRST, got MID"),
        (_two_in_flight, "got a second step in flight"),
        (_not_finite, "expected finite numbers in observation.a"),
        (_hello_again, "expected step, got hello"),
    ],
)
def test_a_bad_message_ends_its_own_stream_and_no_other(
    unix_service: Service, break_a_rule: Any, message: str
) -> None:
    service = unix_service
    with Client(service.address) as good, Client(service.address) as bad:
        good.shake_hands()
        assert service.lobby.wait_for_spec(SECONDS) is not None
        bad.shake_hands()
        break_a_rule(bad)
        code, details = bad.end()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert message in details
        wait_until_free(service, 4)
        good.step(0, FIRST)
        batch = next_batch(service)
        assert batch.slots.tolist() == list(good.groups[0].slots)
        service.lobby.answer(batch, np.zeros(len(batch.slots), np.int32))
        assert isinstance(good.receive(), ActionsPayload)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([ready()], "expected hello, got ready"),
        ([hello(num_envs=0)], "expected num_envs >= 1, got 0"),
        ([StepPayload(b"")], "expected hello, got step"),
    ],
)
def test_a_stream_begins_with_hello(
    unix_service: Service, messages: list[ToLearner], expected: str
) -> None:
    with Client(unix_service.address) as client:
        for message in messages:
            client.send(message)
        assert client.end() == (grpc.StatusCode.INVALID_ARGUMENT, expected)


def test_a_step_must_not_come_before_ready(unix_service: Service) -> None:
    with Client(unix_service.address) as client:
        client.send(hello())
        client.groups = list(client.receive().assign.groups)
        client.step(0, FIRST)
        expected = "expected ready or refusal, got step"
        assert client.end() == (grpc.StatusCode.INVALID_ARGUMENT, expected)


def test_a_spec_that_is_none_is_the_senders_fault(unix_service: Service) -> None:
    with Client(unix_service.address) as client:
        client.send(hello())
        client.receive()
        client.send(seedrl_pb2.FromEnvServer(ready=seedrl_pb2.Ready(spec="{}")))
        code, details = client.end()
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "expected an env spec in JSON, got '{}'" in details
    assert unix_service.lobby.wait_for_spec(0.0) is None


def test_a_disconnect_frees_the_slots_and_cuts_the_streams(service: Service) -> None:
    first = Client(service.address).shake_hands(num_envs=6)
    seeds = [list(group.seeds) for group in first.groups]
    first.step(0, FIRST)
    batch = next_batch(service)
    service.lobby.answer(batch, np.zeros(len(batch.slots), np.int32))
    first.receive()
    first.step(1, MID)
    wait_for(service, lambda: service.lobby.serving.ledger["accepted"] == 8)
    assert service.lobby.take_ended() == []
    first.leave()
    wait_until_free(service, 6)
    ended = service.lobby.take_ended()
    assert set(batch.streams.tolist()) < set(ended)
    assert len(set(ended)) == len(ended) == 6
    assert service.lobby.take_ended() == []
    ledger = service.lobby.ledger()
    assert (ledger["struck"], ledger["discarded"], ledger["partial"]) == (4, 4, 0)
    assert service.lobby.live_slots(evaluation=False).tolist() == []
    with Client(service.address) as second:
        second.shake_hands(num_envs=6)
        assert not {s for group in seeds for s in group} & {
            seed for group in second.groups for seed in group.seeds
        }
        second.step(0, FIRST)
        batch = next_batch(service)
        assert not set(batch.streams.tolist()) & set(ended)
        assert batch.positions.tolist() == [0] * 4
        assert service.lobby.epochs() == [2] * 6


def test_actions_for_an_env_server_that_has_left_go_nowhere(unix_service: Service) -> None:
    service = unix_service
    client = Client(service.address).shake_hands()
    client.step(0, FIRST)
    batch = next_batch(service)
    client.leave()
    wait_for(service, lambda: service.lobby.ended)
    assert service.lobby.serving.slots.num_free == 6 - len(batch.slots)
    service.lobby.answer(batch, np.zeros(len(batch.slots), np.int32))
    wait_until_free(service, 6)


def test_every_env_server_hears_that_training_is_over(service: Service) -> None:
    with Client(service.address) as one, Client(service.address) as other:
        for client in (one, other):
            client.shake_hands()
        one.step(0, FIRST)
        batch = next_batch(service)
        service.lobby.answer(batch, np.zeros(len(batch.slots), np.int32))
        service.finish("it is over")
        assert isinstance(one.receive(), ActionsPayload)  # what was on its way still comes
        for client in (one, other):
            assert client.receive().finish.reason == "it is over"
            assert client.end()[0] == grpc.StatusCode.OK


def test_a_learner_that_stops_asks_env_servers_to_come_back(service: Service) -> None:
    with Client(service.address) as client:
        client.shake_hands()
        assert service.lobby.wait_for_spec(SECONDS) is not None
        service.stop()
        code, details = client.end()
    assert code == grpc.StatusCode.UNAVAILABLE
    assert "come back later" in details


def test_a_second_learner_on_the_address_is_refused_and_harms_nobody(service: Service) -> None:
    second = service_at(service.address)
    with pytest.raises(AddressInUseError, match=f"cannot serve on {service.address}"):
        second.start()
    second.stop(grace_seconds=0.0)
    with Client(service.address) as client:
        client.shake_hands()
        assert service.lobby.wait_for_spec(SECONDS) == SPEC


def test_a_path_that_cannot_be_bound_is_named_and_not_kept_locked(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for _ in range(2):
        service = service_at(f"unix:{tmp_path}/folder")
        with pytest.raises(AddressInUseError, match="in use or not of this machine"):
            service.start()
        AddressLock(service.address).release()
        service.stop(grace_seconds=0.0)


def test_a_socket_path_can_be_served_again_after_a_stop(tmp_path: Path) -> None:
    bind = f"unix:{tmp_path}/socket"
    first = service_at(bind)
    first.start()
    first.stop(grace_seconds=0.0)
    service = service_at(bind)
    with Client(service.start()) as client:
        client.shake_hands()
        assert service.lobby.wait_for_spec(SECONDS) == SPEC
    service.stop(grace_seconds=0.0)


@pytest.mark.parametrize("waits", [False, True])
def test_a_role_that_is_not_allowed_waits(unix_service: Service, waits: bool) -> None:
    service = unix_service
    with Client(service.address) as client:
        client.shake_hands(num_envs=6)
        _step_in_order(service, client, groups=[int(waits), int(not waits)])
        for evaluation in (not waits, waits):  # the one that waits came first
            assert next_batch(service, evaluation=evaluation).evaluation == evaluation


def _step_in_order(service: Service, client: Client, groups: list[int]) -> None:
    """Sends first steps of these groups, each after the one before was accepted."""
    expected = 0
    for group in groups:
        client.step(0, FIRST, group=group)
        expected += len(client.groups[group].slots)
        ledger = service.lobby.serving.ledger
        wait_for(service, lambda rows=expected, ledger=ledger: ledger["accepted"] == rows)


def test_the_role_whose_step_came_first_is_served_first(unix_service: Service) -> None:
    service = unix_service
    with Client(service.address) as client:
        client.shake_hands(num_envs=6)
        _step_in_order(service, client, groups=[1, 0])  # the evaluation group first
        roles = []
        for _ in range(2):
            batch = service.lobby.next_batch(
                is_training_allowed=True, is_evaluation_allowed=True, timeout=SECONDS
            )
            assert batch is not None
            roles.append(batch.evaluation)
        assert roles == [True, False]
