"""All mutants."""

from tests.mutation.mutants import (
    acting,
    env_servers,
    equations,
    learning,
    networks,
    replay,
    reporting,
    serving,
)

MUTANTS = (
    *equations.MUTANTS,
    *networks.MUTANTS,
    *replay.MUTANTS,
    *acting.MUTANTS,
    *serving.MUTANTS,
    *reporting.MUTANTS,
    *learning.MUTANTS,
    *env_servers.MUTANTS,
)
