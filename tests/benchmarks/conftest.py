"""The small setting of `seedrl bench`'s own tests."""

from tests.learner.extras.bench.conftest import pace as pace
from tests.learner.extras.bench.conftest import tiny as tiny
