"""What XLA makes of a convolution, in a process of its own."""

import os
import subprocess
import sys
from importlib import metadata

import pytest

PROGRAM = """
import jax, jax.numpy as jnp
from learner.launch.xla_settings import compile_quick_convolutions

compile_quick_convolutions()
images, kernel = jnp.ones((2, 20, 20, 4)), jnp.ones((8, 8, 4, 32))
layout = ("NHWC", "HWIO", "NHWC")
convolve = lambda *of: jax.lax.conv_general_dilated(*of, (4, 4), "SAME", dimension_numbers=layout)
print("ynn_fusion" in jax.jit(convolve).lower(images, kernel).compile().as_text())
"""


@pytest.mark.skipif(
    metadata.version("jaxlib") != "0.10.2", reason="the option is set for jaxlib 0.10.2"
)
@pytest.mark.parametrize(
    ("flags", "is_by_ynnpack"),
    [("", False), ("--xla_cpu_experimental_ynn_fusion_type=individual_convolution", True)],
)
def test_a_convolution_is_one_of_ynnpack_only_where_flags_say_so(
    flags: str, is_by_ynnpack: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == [str(is_by_ynnpack)]
