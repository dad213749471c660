"""Which nodes of a Ray cluster a run's processes are placed on."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from learner.jobs.accelerators import ANY_GPU, Accelerator

# As Ray calls what it finds on a node: in `ray.nodes()`, and in what an actor asks for.
GPU, TPU = "GPU", "TPU"
# Ray's names of kinds, as it detects them (`ray.util.accelerators`, Ray 2.60). It does not tell
# A100s of 40 and 80 GB apart.
_KINDS = {
    ANY_GPU: "",
    "l4": "L4",
    "a100": "A100",
    "a100-80gb": "A100",
    "h100": "H100",
    "h200": "H200",
    "tpu-v5e": "TPU-V5LITEPOD",
    "tpu-v5p": "TPU-V5P",
    "tpu-v6e": "TPU-V6E",
}


class Node(NamedTuple):
    """A node that is alive.

    Attributes:
      id: Ray's.
      address: by which other nodes reach it.
      cpus: that Ray hands out there; others than actors are not asked about.
      accelerators: how many of what it has, by `GPU` or `TPU`; empty if none.
    """

    id: str
    address: str
    cpus: float
    accelerators: Mapping[str, float]


class Demand(NamedTuple):
    """What a process asks Ray for.

    Attributes:
      cpus: of one node.
      accelerators: as `Node.accelerators`.
      kind: Ray's name of the accelerator; "" for any.
    """

    cpus: int
    accelerators: Mapping[str, float] = {}
    kind: str = ""

    def __str__(self) -> str:
        wanted = {"CPU": self.cpus, **self.accelerators}
        words = [f"{count:g} x {name}" for name, count in wanted.items()]
        return " and ".join(words) + (f" ({self.kind})" if self.kind else "")


def of_learner(cpus: int, accelerator: Accelerator | None, nodes: Iterable[Node]) -> Demand:
    """What a learner asks for; `accelerator` None for all of the node that has most, if any has."""
    if accelerator is None:
        most = max((node.accelerators for node in nodes), key=_count, default={})
        return Demand(cpus, most)
    if not accelerator.count:
        return Demand(cpus)
    name = TPU if accelerator.is_tpu else GPU
    return Demand(cpus, {name: accelerator.count}, _KINDS[accelerator.name])


def for_env_server(
    nodes: Iterable[Node], used: Mapping[str, int], cpus: int, learner: str
) -> Node | None:
    """Where the next env server is placed; None if no node has room for it.

    Of nodes without accelerators that one whose CPUs are used least; if they are full, of the
    others, that of the learner last. `used` has the CPUs of each node that the run uses already.
    """
    rooms = [
        (node.id == learner, bool(node.accelerators), used.get(node.id, 0) / node.cpus, node)
        for node in nodes
        if used.get(node.id, 0) + cpus <= node.cpus
    ]
    # By address and id at last, so that the choice is the same every time.
    return min(rooms, key=lambda room: (*room[:3], room[3][:2]), default=(None,))[-1]


def _count(accelerators: Mapping[str, float]) -> float:
    return sum(accelerators.values())
