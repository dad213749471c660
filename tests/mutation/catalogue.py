"""All mutants."""

from tests.mutation.mutants import (
    acting,
    continuous,
    env_servers,
    equations,
    hosts,
    learning,
    networks,
    normalization,
    on_policy,
    peers,
    replay,
    reporting,
    serving,
    transitions,
)

MUTANTS = (
    *equations.MUTANTS,
    *networks.MUTANTS,
    *replay.MUTANTS,
    *on_policy.MUTANTS,
    *normalization.MUTANTS,
    *acting.MUTANTS,
    *serving.MUTANTS,
    *peers.MUTANTS,
    *hosts.MUTANTS,
    *reporting.MUTANTS,
    *learning.MUTANTS,
    *continuous.MUTANTS,
    *transitions.MUTANTS,
    *env_servers.MUTANTS,
)
