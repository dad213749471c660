"""Where processes are placed."""

from collections import Counter

import pytest

from learner.jobs import accelerators
from learner.on_ray.nodes import Demand, Node, for_env_server, of_learner

HEAD = Node("h", "10.0.0.1", 4.0, {})
CPUS = Node("c", "10.0.0.2", 8.0, {})
GPUS = Node("g", "10.0.0.3", 8.0, {"GPU": 2.0})
MORE_GPUS = Node("m", "10.0.0.4", 8.0, {"GPU": 8.0})
# What only keeps the cluster together.
NO_CPUS = Node("n", "10.0.0.0", 0.0, {})


@pytest.mark.parametrize(
    ("asked", "nodes", "expected"),
    [
        (None, [HEAD, GPUS, MORE_GPUS], Demand(2, {"GPU": 8.0})),
        (None, [HEAD, CPUS], Demand(2)),
        (None, [], Demand(2)),
        ("cpu", [HEAD, GPUS], Demand(2)),
        ("gpu:4", [HEAD], Demand(2, {"GPU": 4})),
        ("a100-80gb:8", [], Demand(2, {"GPU": 8}, "A100")),
        ("tpu-v6e:4", [], Demand(2, {"TPU": 4}, "TPU-V6E")),
    ],
)
def test_a_learner_asks_for_what_was_said_or_for_all_of_the_node_that_has_most(
    asked: str | None, nodes: list[Node], expected: Demand
) -> None:
    accelerator = None if asked is None else accelerators.parse(asked)
    assert of_learner(2, accelerator, nodes) == expected


def test_every_accelerator_has_a_name_in_ray() -> None:
    for name in accelerators.NAMES[1:]:
        demand = of_learner(1, accelerators.parse("tpu-v5p:4" if "v5p" in name else name), [])
        assert bool(demand.kind) == (name != accelerators.ANY_GPU)


def test_a_demand_is_said_in_words() -> None:
    assert str(Demand(2, {"TPU": 4}, "TPU-V6E")) == "2 x CPU and 4 x TPU (TPU-V6E)"
    assert str(Demand(1)) == "1 x CPU"


def test_env_servers_fill_nodes_without_accelerators_evenly_and_the_learners_last() -> None:
    used: Counter[str] = Counter({"m": 2})
    placed = []
    for _ in range(28):
        node = for_env_server([NO_CPUS, HEAD, CPUS, GPUS, MORE_GPUS], used, 1, "m")
        placed.append("" if node is None else node.id)
        used[placed[-1]] += 1
    # By shares of what a node has: one of 4 for every two of 8.
    assert Counter(placed[:6]) == {"h": 2, "c": 4}
    assert Counter(placed[:12]) == {"h": 4, "c": 8}
    assert placed[12:] == ["g"] * 8 + ["m"] * 6 + [""] * 2


def test_an_env_server_of_many_cores_is_placed_where_they_are() -> None:
    assert for_env_server([HEAD, CPUS], {}, 6, "") == CPUS
    assert for_env_server([HEAD], {}, 6, "") is None
