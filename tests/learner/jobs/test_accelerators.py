import math

import pytest

from learner.jobs import accelerators
from seedrl.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "words", "extra"),
    [
        ("cpu", "on CPUs", "learner"),
        ("gpu", "on 1 x gpu", "cuda13"),
        ("h100:8", "on 8 x h100", "cuda13"),
        ("tpu-v6e:4", "on 4 x tpu-v6e", "tpu"),
    ],
)
def test_an_accelerator_is_a_name_with_a_number(text: str, words: str, extra: str) -> None:
    found = accelerators.parse(text)
    assert (found.in_words, found.extra) == (words, extra)
    assert (found.is_gpu, found.is_tpu) == (extra == "cuda13", extra == "tpu")


@pytest.mark.parametrize("text", ["h1000", "gpu:0", "gpu:", "gpu:x", "cpu:4", "", "tpu-v6e:-1"])
def test_another_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(ConfigError, match=f"NAME:COUNT with one of cpu, gpu, .* got '{text}'"):
        accelerators.parse(text)


@pytest.mark.parametrize("text", ["tpu-v6e:16", "tpu-v5p"])
def test_a_slice_that_is_no_host_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(ConfigError, match=r"one host has tpu-v\w+:\d.*larger slice has several"):
        accelerators.parse(text)


def test_a_topology_has_as_many_chips_as_the_slice() -> None:
    for name in ("tpu-v5e", "tpu-v5p", "tpu-v6e"):
        for count in (1, 4, 8):
            try:
                topology = accelerators.parse(f"{name}:{count}").topology
            except ConfigError:
                continue
            assert math.prod(map(int, topology.split("x"))) == count


def test_a_topology_of_several_hosts_has_the_chips_of_all() -> None:
    for name in ("tpu-v5e", "tpu-v5p", "tpu-v6e"):
        for hosts in (2, 4, 8, 16):
            found = accelerators.parse(f"{name}:4", hosts)
            assert math.prod(map(int, found.topology.split("x"))) == 4 * hosts
            assert found.count == 4


@pytest.mark.parametrize(("text", "hosts"), [("tpu-v6e:8", 2), ("tpu-v6e:4", 3), ("tpu-v5p:4", 64)])
def test_a_slice_that_there_is_not_is_refused_with_those_that_there_are(
    text: str, hosts: int
) -> None:
    with pytest.raises(ConfigError, match=rf":4 on each of --hosts 2, 4, .*--hosts {hosts}"):
        accelerators.parse(text, hosts)
