"""What becomes of Ray's errors; Ray itself is a stand-in."""

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from learner.on_ray.cluster import LostError
from learner.on_ray.nodes import Demand
from seedrl.errors import HostLostError

MODULE = "learner.on_ray.ray_cluster"


def lose(*_: object, **__: object) -> None:
    raise ConnectionError("the channel is closed")


class Unanswered:
    """A call that was made, and whose id does not come."""

    def __hash__(self) -> int:
        raise ConnectionError("the channel is closed")


class Actors:
    """A class of them, of which none can be made."""

    remote = staticmethod(lose)

    @classmethod
    def options(cls, **_: object) -> "type[Actors]":
        return cls


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One that cannot be reached any more."""
    stand_ins = {
        "ray": {
            **{"init": lambda **_: None, "remote": lambda _: Actors},
            **dict.fromkeys(("wait", "kill", "nodes", "get"), lose),
        },
        "ray.exceptions": {
            name: type(name, (Exception,), {})
            for name in ("ActorUnavailableError", "RayError", "RayTaskError")
        },
        "ray.util.scheduling_strategies": {"NodeAffinitySchedulingStrategy": object},
    }
    for name, attributes in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    # Imported with them, and forgotten after the test.
    monkeypatch.setitem(sys.modules, MODULE, ModuleType(MODULE))
    del sys.modules[MODULE]
    return importlib.import_module(MODULE).RayCluster("ray://head:10001")


def test_whatever_is_asked_of_a_cluster_that_is_lost_says_so(cluster: Any) -> None:
    actor = SimpleNamespace(
        end=SimpleNamespace(remote=lose), stop=SimpleNamespace(remote=Unanswered)
    )
    asked = {
        "call": lambda: cluster.call(actor, "end", 0.0),
        "the id of a call": lambda: cluster.call(actor, "stop"),
        "ready": lambda: cluster.ready(["a call"], 0.0),
        "remove": lambda: cluster.remove(actor),
        "nodes": cluster.nodes,
        "place": lambda: cluster.place(Demand(1), None),
        "answer": lambda: cluster.answer("a call"),
    }
    for ask in asked.values():
        with pytest.raises(HostLostError, match=r"cluster at ray://head:10001 is lost \(the chan"):
            ask()


def test_what_an_actor_has_called_in_vain_is_no_loss_of_the_cluster(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[MODULE]

    def raise_of_task(_: object) -> None:
        # Ray's error of a task is one of the task's error, too.
        raise type("TaskError", (module.RayError, ConnectionError), {})("no route to a bucket")

    monkeypatch.setattr(module.ray, "get", raise_of_task)
    with pytest.raises(LostError, match="no route to a bucket"):
        cluster.answer("a call")
