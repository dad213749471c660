"""The accelerators of one host, and what engines call them."""

from dataclasses import dataclass
from typing import NamedTuple

from seedrl.errors import ConfigError

CPU = "cpu"
# Any NVIDIA GPU that the engine has.
ANY_GPU = "gpu"


class _Gpu(NamedTuple):
    gke: str
    sky: str


class _Tpu(NamedTuple):
    gke: str
    topologies: dict[int, str]
    of_hosts: dict[int, str]


# GKE: the values of the node label cloud.google.com/gke-accelerator, as in its documentation ("Run
# GPUs in GKE Standard node pools"). SkyPilot: its catalog's names. Both November 2026.
_GPUS = {
    ANY_GPU: _Gpu("", ""),
    "l4": _Gpu("nvidia-l4", "L4"),
    "a100": _Gpu("nvidia-tesla-a100", "A100"),
    "a100-80gb": _Gpu("nvidia-a100-80gb", "A100-80GB"),
    "h100": _Gpu("nvidia-h100-80gb", "H100"),
    "h200": _Gpu("nvidia-h200-141gb", "H200"),
}
# cloud.google.com/gke-tpu-accelerator and -topology of slices that one host has to itself, by their
# chips, and of those of several hosts, by the number of these; from "Plan TPUs in GKE", November
# 2026. SkyPilot calls those of one host the same on Kubernetes.
_FLAT = {2: "2x4", 4: "4x4", 8: "4x8", 16: "8x8", 32: "8x16", 64: "16x16"}
_CUBIC = {2: "2x2x2", 4: "2x2x4", 8: "2x4x4", 16: "4x4x4"}
_TPUS = {
    "tpu-v5e": _Tpu("tpu-v5-lite-podslice", {1: "1x1", 4: "2x2", 8: "2x4"}, _FLAT),
    "tpu-v5p": _Tpu("tpu-v5p-slice", {4: "2x2x1"}, _CUBIC),
    "tpu-v6e": _Tpu("tpu-v6e-slice", {1: "1x1", 4: "2x2", 8: "2x4"}, _FLAT),
}
# Whatever the kind, where a slice has several.
_CHIPS_OF_HOST = 4
NAMES = (CPU, *_GPUS, *_TPUS)


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """What one host of a learner computes with.

    Attributes:
      name: a GPU's or TPU's name here; "cpu" for none.
      count: devices; 0 of none.
      extra: the extra of seedrl that brings jax for it.
      gke: GKE's name of it, for node labels; "" if any is good, or there is none.
      topology: of a TPU slice, over all of its hosts, as GKE writes it; "" for others.
      sky: SkyPilot's name of it; "" if there is none.
    """

    name: str
    count: int
    extra: str
    gke: str = ""
    topology: str = ""
    sky: str = ""

    @property
    def in_words(self) -> str:
        """For a sentence about the learner: on what it is."""
        return f"on {self.count} x {self.name}" if self.count else "on CPUs"

    @property
    def is_gpu(self) -> bool:
        """Whether it is NVIDIA's."""
        return self.name in _GPUS

    @property
    def is_tpu(self) -> bool:
        """Whether it is Google's."""
        return self.name in _TPUS


def parse(text: str, hosts: int = 1) -> Accelerator:
    """The accelerator of each host that `NAME` or `NAME:COUNT` means.

    Raises ConfigError for one that there is not, or not on so many hosts.
    """
    name, colon, number = text.partition(":")
    count = int(number) if number.isdecimal() else 0 if colon else 1
    if name == CPU and not colon:
        return Accelerator(name=CPU, count=0, extra="learner")
    if name not in NAMES or name == CPU or count < 1:
        raise ConfigError(
            f"--accelerator: expected NAME or NAME:COUNT with one of {', '.join(NAMES)} "
            f"({CPU} without a count), got {text!r}"
        )
    if name in _GPUS:
        gpu = _GPUS[name]
        return Accelerator(name=name, count=count, extra="cuda13", gke=gpu.gke, sky=gpu.sky)
    gke, topology = _TPUS[name].gke, _topology(name, count, hosts, text)
    return Accelerator(name=name, count=count, extra="tpu", gke=gke, topology=topology, sky=gke)


def _topology(name: str, count: int, hosts: int, text: str) -> str:
    """Of the TPU slice that has `count` chips on each host. Raises ConfigError if there is none."""
    _, topologies, of_hosts = _TPUS[name]
    if hosts == 1:
        if count in topologies:
            return topologies[count]
        sizes = ", ".join(f"{name}:{size}" for size in topologies)
        raise ConfigError(
            f"--accelerator: one host has {sizes}, got {text!r}; a larger slice has several: "
            f"{name}:{_CHIPS_OF_HOST} with --hosts"
        )
    if count == _CHIPS_OF_HOST and hosts in of_hosts:
        return of_hosts[hosts]
    numbers = ", ".join(map(str, of_hosts))
    raise ConfigError(
        f"--accelerator: a slice of several hosts has {name}:{_CHIPS_OF_HOST} on each of --hosts "
        f"{numbers}, got {text!r} with --hosts {hosts}"
    )
