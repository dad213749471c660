"""Programs that tests of faults start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.processes import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs; those that still run end with the test."""
    with Programs(tmp_path) as started:
        yield started
