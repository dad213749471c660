"""Programs that tests of faults start."""

from tests.system.conftest import programs

__all__ = ["programs"]
