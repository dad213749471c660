"""Who is admitted by the real service over real gRPC, or over a link, and who is refused."""

from pathlib import Path

import grpc
import pytest

from learner.serving import server
from learner.serving.server import Service
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.wire import seedrl_pb2, version
from tests.learner.serving.scripted_env_server import (
    FIRST,
    SECONDS,
    SPEC,
    Client,
    hello,
    ready,
    service_at,
    wait_until_free,
)

pytestmark = pytest.mark.usefixtures("way")


def test_the_handshake_says_what_to_build_and_leases_slots(service: Service) -> None:
    with Client(service.address) as client:
        client.send(hello(num_envs=6, num_groups=2))
        assign = client.receive().assign
        (built,) = assign.environments
        assert (built.id, built.arguments) == ("Some-v0", '{"x": 1}')
        assert (list(built.wrappers), built.vectorization) == (["m:w"], "sync")
        assert [list(group.slots) for group in assign.groups] == [[0, 1], [2, 3], [4, 5]]
        assert [group.evaluation for group in assign.groups] == [False, False, True]
        seeds = [seed for group in assign.groups for seed in group.seeds]
        assert len(set(seeds)) == 6
        assert max(seeds) < 2**31
        client.groups = list(assign.groups)
        client.send(ready())
        # The first spec decides for all: it counts once its environments are seen to step.
        client.step(0, FIRST)
        assert service.hub.wait_for_spec(SECONDS) == SPEC
        assert service.hub.live_slots("training").tolist() == [0, 1, 2, 3]
        assert service.hub.live_slots("evaluation").tolist() == [4, 5]


@pytest.mark.parametrize("major", [2, version.MAJOR + 1])
def test_another_major_version_is_refused_in_one_line(service: Service, major: int) -> None:
    with Client(service.address) as client:
        client.send(hello(major=major))
        code, details = client.end()
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert f"expected wire version {version.MAJOR}.x, got {major}." in details
    assert "\n" not in details
    wait_until_free(service, 6)


def test_another_environment_is_refused_field_by_field(unix_service: Service) -> None:
    service = unix_service
    other = EnvSpec({"a": ArraySpec((3,), "float32"), "c": ArraySpec((), "int8")}, DiscreteSpec(4))
    with Client(service.address) as first, Client(service.address) as second:
        first.shake_hands().step(0, FIRST)
        assert service.hub.wait_for_spec(SECONDS) == SPEC
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
            "action: expected 3 discrete actions, got 4 discrete actions"
        )
        wait_until_free(service, 4)
        assert service.hub.wait_for_spec(0.0) == SPEC


_ARRAY = seedrl_pb2.Observation(array=seedrl_pb2.Array(shape=[4], dtype="float32"))
_LARGE = seedrl_pb2.Array(shape=[2**30], dtype="bool")
_LONG = seedrl_pb2.Observation(array=seedrl_pb2.Array(shape=[4], dtype="x" * 2**17))
_IMPOSSIBLE = {
    "actions": (
        seedrl_pb2.EnvSpec(action=seedrl_pb2.Action(discrete=0), observation=_ARRAY),
        "action: expected 1 to 1048576 discrete actions, got 0",
    ),
    "elements": (
        seedrl_pb2.EnvSpec(
            action=seedrl_pb2.Action(discrete=2), observation=seedrl_pb2.Observation(array=_LARGE)
        ),
        "observation: expected at most 268435456 elements, got shape (1073741824,)",
    ),
    "length": (seedrl_pb2.EnvSpec(observation=_LONG), "expected a FromEnvServer message of the "),
}


@pytest.mark.parametrize("case", _IMPOSSIBLE)
def test_the_first_spec_may_be_impossible_and_only_its_sender_is_refused(
    service: Service, case: str
) -> None:
    spec, reason = _IMPOSSIBLE[case]
    with Client(service.address) as client:
        client.send(hello())
        client.receive()
        client.send(seedrl_pb2.FromEnvServer(ready=seedrl_pb2.Ready(spec=spec)))
        code, details = client.end()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert details.startswith(reason)
    wait_until_free(service, 6)
    with Client(service.address) as client:
        client.shake_hands().step(0, FIRST)
        assert service.hub.wait_for_spec(SECONDS) == SPEC


def left(service: Service) -> list[tuple[str, str]]:
    """Which env servers have left, and why."""
    return [
        (server.name, server.left_because)
        for server in service.hub.env_servers().servers
        if server.state == "left"
    ]


def test_the_spec_of_a_checkpoint_holds_for_the_first_env_server(tmp_path: Path) -> None:
    spec = EnvSpec(ArraySpec((9,), "uint8"), DiscreteSpec(3))
    service = service_at(f"unix:{tmp_path}/socket", spec=spec)
    with Client(service.start()) as client:
        client.shake_hands()
        code, details = client.end()
    assert not service.hub.wait_for_env_server(0.0)
    service.stop(grace_seconds=0.0)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert details.startswith("this environment differs from the checkpoint's: observation: exp")
    assert details.endswith("; restore the config or start a new workdir")
    assert left(service) == [("h:7", details)]


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


def test_a_stream_without_hello_or_without_ready_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HELLO_SECONDS", 0.01)
    service = service_at(f"unix:{tmp_path}/socket", ready_deadline_seconds=0.02)
    with Client(service.start()) as silent, Client(service.address) as building:
        building.send(hello())
        building.receive()
        assert silent.end() == (grpc.StatusCode.UNAVAILABLE, "expected hello within 0 seconds")
        code, details = building.end()
        assert code == grpc.StatusCode.UNAVAILABLE
        assert "serving.ready_deadline_seconds" in details
        wait_until_free(service, 6)
        with Client(service.address).shake_hands() as ready_in_time:
            ready_in_time.step(0, FIRST)
            assert service.hub.wait_for_spec(SECONDS) == SPEC
    service.stop(grace_seconds=0.0)
