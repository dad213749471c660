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
# chips; from "Plan TPUs in GKE", November 2026. SkyPilot calls them the same on Kubernetes.
_TPUS = {
    "tpu-v5e": _Tpu("tpu-v5-lite-podslice", {1: "1x1", 4: "2x2", 8: "2x4"}),
    "tpu-v5p": _Tpu("tpu-v5p-slice", {4: "2x2x1"}),
    "tpu-v6e": _Tpu("tpu-v6e-slice", {1: "1x1", 4: "2x2", 8: "2x4"}),
}
NAMES = (CPU, *_GPUS, *_TPUS)


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """What one host of a learner computes with.

    Attributes:
      name: a GPU's or TPU's name here; "cpu" for none.
      count: devices; 0 of none.
      extra: the extra of seedrl that brings jax for it.
      gke: GKE's name of it, for node labels; "" if any is good, or there is none.
      topology: of a TPU slice, as GKE writes it; "" for others.
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


def parse(text: str) -> Accelerator:
    """The accelerator that `NAME` or `NAME:COUNT` means. Raises ConfigError for what it cannot."""
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
    gke, topologies = _TPUS[name]
    if count not in topologies:
        sizes = ", ".join(f"{name}:{size}" for size in topologies)
        raise ConfigError(
            f"--accelerator: one host has {sizes}, got {text!r}; a slice of several hosts needs a "
            "learner of several hosts, which is not built yet"
        )
    return Accelerator(
        name=name, count=count, extra="tpu", gke=gke, topology=topologies[count], sky=gke
    )
