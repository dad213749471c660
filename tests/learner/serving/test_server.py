"""Dialogues with the real service over real gRPC, or over a link."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from learner.serving import server
from learner.serving.connection import Connection
from learner.serving.ledger import ALWAYS, residues
from learner.serving.server import Service, message_limit
from seedrl.config import ServingConfig
from seedrl.errors import AddressInUseError
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec
from seedrl.wire import contract, learner_end, seedrl_pb2
from seedrl.wire.framing import ActionsPayload, StepPayload
from seedrl.wire.learner_end import LearnerLink
from seedrl.wire.payload import ActionLayout, StepLayout
from seedrl.wire.seedrl_pb2 import Sent
from tests.learner.serving.scripted_env_server import (
    ENVIRONMENT,
    FIRST,
    MID,
    SECONDS,
    SPEC,
    Client,
    hello,
    next_batch,
    ready,
    service_at,
    wait_for,
    wait_until_free,
)
from tests.patience import wait_until

INVALID, FAILED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION
_OTHER = EnvSpec({"a": ArraySpec((3,), "float32"), "c": ArraySpec((), "int8")}, DiscreteSpec(4))


def _answer(service: Service) -> None:
    batch = next_batch(service)
    service.hub.answer(batch, np.zeros(len(batch.slots), np.int32))


# --- dialogues that go well ---


def test_the_handshake_says_what_to_build_and_leases_slots(service: Service) -> None:
    with Client(service.address) as client:
        client.send(hello(num_envs=6, num_groups=2))
        assign = client.receive().assign
        built = assign.environment
        assert (built.id, built.arguments) == ("Some-v0", '{"x": 1}')
        assert (list(built.wrappers), built.vectorization) == (["m:w"], "sync")
        assert [list(group.slots) for group in assign.groups] == [[0, 1], [2, 3], [4, 5]]
        assert [group.evaluation for group in assign.groups] == [False, False, True]
        seeds = {seed for group in assign.groups for seed in group.seeds}
        assert len(seeds) == 6 and max(seeds) < 2**31
        client.groups = list(assign.groups)
        client.send(ready())
        client.step(0, FIRST)
        assert service.hub.wait_for_spec(SECONDS) == SPEC
        assert service.hub.live_slots("training").tolist() == [0, 1, 2, 3]
        assert service.hub.live_slots("evaluation").tolist() == [4, 5]


def test_a_disconnect_frees_the_slots_and_cuts_the_streams(service: Service) -> None:
    first = Client(service.address).shake_hands(num_envs=6)
    seeds = {seed for group in first.groups for seed in group.seeds}
    first.step(0, FIRST)
    _answer(service)
    first.receive()
    first.step(1, MID)
    wait_for(service, lambda: service.hub.ledger().get("accepted") == 8)
    assert service.hub.take_ended() == []
    first.leave()
    wait_until_free(service, 6)
    ended = service.hub.take_ended()
    assert len(set(ended)) == len(ended) == 6
    assert service.hub.take_ended() == []
    ledger = service.hub.ledger()
    assert (ledger["struck"], ledger["discarded"], ledger["partial"]) == (4, 4, 0)
    with Client(service.address) as second:
        second.shake_hands(num_envs=6)
        assert not seeds & {seed for group in second.groups for seed in group.seeds}
        second.step(0, FIRST)
        batch = next_batch(service)
        assert not set(batch.streams.tolist()) & set(ended)
        assert batch.positions.tolist() == [0] * 4


def test_every_env_server_hears_that_training_is_over(service: Service) -> None:
    with Client(service.address) as one, Client(service.address) as other:
        for client in (one, other):
            client.shake_hands()
        one.step(0, FIRST)
        _answer(service)
        service.finish("it is over")
        assert isinstance(one.receive(), ActionsPayload)  # what was on its way still arrives
        for client in (one, other):
            assert client.receive().finish.reason == "it is over"
            assert client.end()[0] == grpc.StatusCode.OK


def test_an_env_server_without_a_slot_is_told_that_training_is_over(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_RETURN_SECONDS", SECONDS)
    with Client(service.address) as one:
        one.shake_hands(num_envs=6)
        with Client(service.address) as spare:
            spare.send(hello())
            assert spare.end()[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        finish = threading.Thread(target=service.finish, args=("it is over",))
        finish.start()
        assert one.receive().finish.reason == "it is over"  # it does not wait for the spare
        with Client(service.address) as spare:
            spare.send(hello())
            assert spare.receive().finish.reason == "it is over"
            assert spare.end()[0] == grpc.StatusCode.OK
        service._stopping.set()
        finish.join(SECONDS)


def test_an_env_server_whose_hello_comes_as_training_ends_is_told_so(service: Service) -> None:
    with Client(service.address) as late:
        wait_until(lambda: service._calls)
        finish = threading.Thread(target=service.finish, args=("it is over",))
        finish.start()
        wait_until(lambda: not service.hub._is_open)
        late.send(hello())
        assert late.receive().finish.reason == "it is over"
        assert late.end()[0] == grpc.StatusCode.OK
        finish.join(SECONDS)


# --- dialogues that break a rule ---

Script = Sequence[Any]  # messages to send; READ for Assign; functions that are called
READ = None


def _play(client: Client, script: Script) -> tuple[grpc.StatusCode, str]:
    """How the stream ends."""
    for part in script:
        if part is READ:
            client.groups = list(client.receive().assign.groups)
        elif callable(part):
            part(client)
        else:
            client.send(part)
    return client.end()


def _stepped(*arguments: Any, **named: Any) -> Callable[[Client], None]:
    return lambda client: client.step(*arguments, **named)


def _spec(**fields: Any) -> seedrl_pb2.FromEnvServer:
    ready = seedrl_pb2.Ready(spec=seedrl_pb2.EnvSpec(**fields))
    return seedrl_pb2.FromEnvServer(ready=ready)


def _array(**fields: Any) -> seedrl_pb2.Observation:
    return seedrl_pb2.Observation(array=seedrl_pb2.Array(**fields))


def _group_too_many(client: Client) -> None:
    client.groups = [*client.groups, client.groups[0]]
    client.step(0, FIRST, group=2)


_SHAKE = [hello(), READ, ready()]
# What is sent, the status, and words that its env server's user needs.
_DIALOGUES: dict[str, tuple[Script, grpc.StatusCode, Sequence[str]]] = {
    "ready first": ([ready()], INVALID, ["hello", "ready"]),
    "step first": ([StepPayload(b"")], INVALID, ["hello", "step"]),
    "hello twice": ([*_SHAKE, hello()], INVALID, ["step", "hello"]),
    "no environment": ([hello(num_envs=0)], INVALID, ["num_envs"]),
    "wire 2": ([hello(major=2)], FAILED, [f"{contract.MAJOR}.x", "2."]),
    "newer wire": ([hello(major=9)], FAILED, [f"{contract.MAJOR}.x", "9."]),
    "no spec": ([hello(), READ, _spec()], INVALID, ["observation"]),
    "giant name": (
        [hello(), READ, _spec(observation=_array(shape=[4], dtype="x" * 2**17))],
        INVALID,
        ["FromEnvServer"],
    ),
    "garbage": ([*_SHAKE, StepPayload(b"x" * 40)], INVALID, ["group < 2"]),
    "group too many": ([*_SHAKE, _group_too_many], INVALID, ["group < 2"]),
    "lost step": ([*_SHAKE, _stepped(5, FIRST)], INVALID, ["sequence 0", "5"]),
    "not first": ([*_SHAKE, _stepped(0, MID)], INVALID, ["FIRST", "step type 1"]),
    "two in flight": (
        [*_SHAKE, _stepped(0, FIRST), _stepped(1, MID)],
        INVALID,
        ["in flight"],
    ),
    "not finite": (
        [*_SHAKE, _stepped(0, FIRST, mark=float("nan"))],
        INVALID,
        ["Some-v0", "observation.a"],
    ),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("case", _DIALOGUES)
def test_an_env_server_that_breaks_a_rule_harms_itself_only(
    unix_service: Service, case: str
) -> None:
    service = unix_service
    script, code, words = _DIALOGUES[case]
    with Client(service.address) as bad:
        found, details = _play(bad, script)
    assert found is code and "\n" not in details
    assert all(word in details for word in words), details
    wait_until_free(service, 6)
    # The next one is served; what broke the rule before a first step fixed no spec.
    with Client(service.address) as good, Client(service.address) as bad:
        good.shake_hands().step(0, FIRST)
        assert service.hub.wait_for_spec(SECONDS) == SPEC
        _play(bad, script)
        wait_until_free(service, 4)
        assert next_batch(service).slots.tolist() == list(good.groups[0].slots)


@pytest.mark.parametrize("minor", [0, contract.MINOR + 1])
def test_an_older_and_a_newer_minor_version_are_served(unix_service: Service, minor: int) -> None:
    newer = hello(minor=minor)
    newer.hello.MergeFromString(b"\xf8\x07\x01")  # a field of number 127, which nothing here knows
    with Client(unix_service.address) as client:
        client.send(newer)
        client.groups = list(client.receive().assign.groups)
        client.send(ready())
        client.step(0, FIRST)
        _answer(unix_service)
        assert isinstance(client.receive(), ActionsPayload)


@pytest.mark.usefixtures("way")
def test_another_environment_is_refused_field_by_field(unix_service: Service) -> None:
    service = unix_service
    with Client(service.address) as first, Client(service.address) as second:
        first.shake_hands().step(0, FIRST)
        assert service.hub.wait_for_spec(SECONDS) == SPEC
        code, details = _play(second, [hello(), READ, ready(_OTHER)])
        assert code is FAILED
        for field in ("observation.a:", "observation.b:", "observation.c:", "action."):
            assert field in details
        wait_until_free(service, 4)
        assert service.hub.wait_for_spec(0.0) == SPEC


def test_steps_that_are_too_long_are_refused_before_the_first(unix_service: Service) -> None:
    image = EnvSpec(ArraySpec((2**20,), "uint8"), DiscreteSpec(3))
    with Client(unix_service.address) as client, Client(unix_service.address) as other:
        code, details = _play(client, [hello(), READ, ready(image)])
        assert code is FAILED and "serving.max_message_bytes" in details
        # It is no run's spec then.
        other.shake_hands().step(0, FIRST)
        assert unix_service.hub.wait_for_spec(SECONDS) == SPEC


def test_the_spec_of_a_checkpoint_holds_for_the_first_env_server(tmp_path: Path) -> None:
    service = service_at(f"unix:{tmp_path}/socket", spec=_OTHER)
    with Client(service.start()) as client:
        code, details = _play(client, _SHAKE)
    assert not service.hub.wait_for_env_server(0.0)
    service.stop(grace_seconds=0.0)
    assert code is FAILED and "checkpoint" in details and "observation.a:" in details
    (left,) = service.hub.env_servers().servers
    assert (left.name, left.state, left.left_because) == ("h:7", "left", details)


def test_a_stream_without_hello_or_without_ready_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = service_at(f"unix:{tmp_path}/socket", ready_deadline_seconds=0.02)
    with Client(service.start()) as silent, Client(service.address) as building:
        code, details = _play(building, [hello(), READ])
        assert code is grpc.StatusCode.UNAVAILABLE and "ready" in details
        with monkeypatch.context() as patch:  # a busy machine could be late with a hello, too
            patch.setattr(server, "HELLO_SECONDS", 0.01)
            code, details = _play(silent, [])
        assert code is grpc.StatusCode.UNAVAILABLE and "hello" in details
        wait_until_free(service, 6)
        service._config = dataclasses.replace(service._config, ready_deadline_seconds=SECONDS)
        with Client(service.address).shake_hands() as ready_in_time:
            ready_in_time.step(0, FIRST)
            assert service.hub.wait_for_spec(SECONDS) == SPEC
    service.stop(grace_seconds=0.0)


def test_a_message_too_long_for_a_link_is_its_senders_fault(
    unix_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "offers_link", True)
    with Client(unix_service.address) as client:
        code, details = _play(client.shake_hands(), [StepPayload(bytes(2**20 + 1))])
    assert code is INVALID and "max_message_bytes" in details


# --- peers that do not read ---

# More than gRPC takes for one that does not read: 4 MiB were seen.
_UNREAD = [memoryview(bytes(1_000_000))] * 24


@pytest.mark.parametrize("breaks_a_rule", [False, True])
def test_a_peer_that_does_not_read_is_cut_off(
    unix_service: Service, monkeypatch: pytest.MonkeyPatch, breaks_a_rule: bool
) -> None:
    service = unix_service
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.01)
    with Client(service.address, 2 * SECONDS).shake_hands() as stalled:
        (lease,) = service.hub._serving.slots.leases.values()
        connection = lease.holder
        assert isinstance(connection, Connection)
        for answer in _UNREAD:
            connection.outbox.put(answer)
        if breaks_a_rule:
            stalled.step(7, FIRST)
        else:
            connection.send_actions([b"one more"])
        # No call is open, and no thread reads one.
        wait_until(lambda: not service._calls)
        wait_until(lambda: all(each.name != "reader" for each in threading.enumerate()))
        assert service.hub._serving.slots.num_free == 6
        with Client(service.address).shake_hands() as other:
            other.step(0, FIRST)
            assert next_batch(service).slots.tolist() == list(other.groups[0].slots)


def test_a_peer_that_does_not_read_its_link_loses_its_lease(
    unix_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "offers_link", True)
    with Client(unix_service.address).shake_hands() as client:
        client.step(0, FIRST)
        monkeypatch.setattr(LearnerLink, "send_at_once", lambda link, message: False)
        _answer(unix_service)
        assert client.end()[0] == grpc.StatusCode.UNAVAILABLE
    wait_until_free(unix_service, 6)


# --- reports of earlier leases ---


@pytest.mark.usefixtures("way")
def test_who_guesses_a_lease_ends_nobody(unix_service: Service) -> None:
    service = unix_service
    with Client(service.address) as victim, Client(service.address) as attacker:
        victim.shake_hands(num_envs=2)
        guesses = [*range(1, 100), victim.lease + 1, victim.lease ^ 1 << 63]
        attacker.shake_hands(sent=[Sent(lease=key % 2**64) for key in guesses])
        for sequence, kind in enumerate((FIRST, MID)):
            victim.step(sequence, kind)
            _answer(service)
            victim.receive()
        assert residues(service.hub.ledger(), ALWAYS) == []


# --- the service itself ---


def test_a_second_learner_on_the_address_is_refused_and_harms_nobody(service: Service) -> None:
    second = service_at(service.address)
    with pytest.raises(AddressInUseError) as caught:
        second.start()
    assert service.address in str(caught.value)
    second.stop(grace_seconds=0.0)
    with Client(service.address) as client:
        client.shake_hands().step(0, FIRST)
        assert service.hub.wait_for_spec(SECONDS) == SPEC


def test_a_message_may_be_as_long_as_all_slots_need() -> None:
    images = EnvSpec(ArraySpec((84, 84), "uint8"), DiscreteSpec(2))
    reaching = EnvSpec(ArraySpec((1,), "float32"), BoxSpec((1024,), (-1.0,) * 1024, (1.0,) * 1024))
    environment = dataclasses.replace(ENVIRONMENT, metrics=("score",))
    serving = ServingConfig(training_slots=20, evaluation_slots=12)
    limit = message_limit(serving, environment, images)
    assert 1.2 < limit / (32 * 84 * 84) < 1.3
    assert limit >= StepLayout(images, 32, 1).most_bytes
    # Actions may be longer than observations.
    limit = message_limit(serving, environment, reaching)
    assert limit >= ActionLayout(reaching.action, 32).num_bytes
    # More than gRPC can count would end a resumed run.
    huge = EnvSpec(ArraySpec((2**13, 2**13), "uint8"), DiscreteSpec(2))
    limit = message_limit(serving, environment, huge)
    grpc.server(ThreadPoolExecutor(1), options=learner_end.server_options(limit))
