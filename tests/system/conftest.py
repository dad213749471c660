"""Fixtures of the system tests."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from seedrl.config import Config
from tests.system.harness import LearnerRun
from tests.system.processes import Programs


@pytest.fixture(scope="module")
def learner_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LearnerRun]]:
    """`config -> LearnerRun`: serving on a unix socket, waiting for env servers. Closed at the end.

    The address of the configuration is replaced.
    """
    with ExitStack() as stack:

        def start(config: Config) -> LearnerRun:
            folder: Path = tmp_path_factory.mktemp("learner")
            serving = dataclasses.replace(config.serving, bind=f"unix:{folder}/socket")
            run = LearnerRun(dataclasses.replace(config, serving=serving), folder)
            stack.callback(run.close)
            return run

        yield start


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts real programs; those that still run are killed at the end."""
    with Programs(tmp_path) as started:
        yield started
