"""How XLA compiles for CPUs."""

import os
from importlib import metadata

# XLA ends the process at a flag that it does not know: only for the release that was tried, which
# is the last for Python 3.11.
_JAXLIB = "0.10.2"
_OPTION = "xla_cpu_experimental_ynn_fusion_type"


def compile_quick_convolutions() -> None:
    """Lets convolutions on CPUs use all cores, as long as nothing of XLA has run.

    jaxlib 0.10.2 gives each to YNNPACK, and where its result is kept for the gradient, that takes
    one thread and three times as long: the first layer of the Nature network takes 360 images in 30
    ms, without YNNPACK in 11, and an update of Pong takes 240 ms and 170 (two cores of
    an EPYC). Dot products and sums stay as they are.

    Who names the option in XLA_FLAGS decides.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if metadata.version("jaxlib") == _JAXLIB and _OPTION not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{_OPTION}=-individual_convolution".strip()
