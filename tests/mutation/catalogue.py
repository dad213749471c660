"""All mutants."""

from tests.mutation.mutants import (
    acting,
    env_servers,
    equations,
    learning,
    networks,
    replay,
    serving,
)

MUTANTS = (
    *equations.MUTANTS,
    *networks.MUTANTS,
    *replay.MUTANTS,
    *acting.MUTANTS,
    *serving.MUTANTS,
    *learning.MUTANTS,
    *env_servers.MUTANTS,
)
