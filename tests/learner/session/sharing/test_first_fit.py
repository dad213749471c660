"""Waiting for the first environment that a run can use, and what ends that."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from learner.processes.stop import StopRequest
from learner.session.end_of_run import raise_death
from learner.session.sharing.first_fit import first_fit, wait_for
from learner.threads.deaths import Deaths
from seedrl.errors import ConfigError
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec


def test_waiting_ends_with_what_was_found_or_with_the_run() -> None:
    stop, looks = StopRequest(), iter([None, None, "found"])
    assert wait_for(lambda timeout: next(looks), stop) == "found"
    stop.set()
    assert wait_for(lambda timeout: None, stop) is None


def test_who_waits_for_env_servers_hears_of_a_thread_that_cannot_bring_any() -> None:
    service: Any = SimpleNamespace(failure=None)
    deaths, looks = Deaths(), iter([None, None])

    def look(timeout: float) -> None:
        next(looks)
        service.failure = OSError("no more sockets")

    with pytest.raises(RuntimeError, match="a thread of the service died: no more sockets"):
        wait_for(look, StopRequest(), lambda: raise_death(service, deaths))
    assert next(looks) is None


@pytest.mark.parametrize("is_checkpoints", [False, True])
def test_an_environment_that_does_not_fit_ends_a_run_only_if_a_checkpoint_names_it(
    is_checkpoints: bool,
) -> None:
    small, right = (EnvSpec(ArraySpec((size,), "float32"), DiscreteSpec(2)) for size in (3, 4))
    specs, stop = mock.Mock(), StopRequest()
    specs.wait.side_effect = [small, None, right]
    specs.settle.return_value = not is_checkpoints

    def build(spec: EnvSpec) -> Any:
        if spec == small:
            raise ConfigError("agent: too small")
        return spec

    if is_checkpoints:
        with pytest.raises(ConfigError, match="too small"):
            first_fit(specs, build, stop, lambda: None)
    else:
        assert first_fit(specs, build, stop, lambda: None) == right
    assert specs.settle.call_args_list[0] == mock.call("agent: too small")
    assert (mock.call() in specs.settle.call_args_list) != is_checkpoints
