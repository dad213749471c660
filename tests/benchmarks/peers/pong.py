"""Pong against Sample Factory; see `tests.benchmarks.peers.atari`."""

import functools

from tests.benchmarks.peers import atari

run = functools.partial(atari.run, atari.PONG)
