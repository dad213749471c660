"""Nothing but votes: `python -m tests.tools.hosts.voter COORDINATOR H INDEX N`, H times.

The first one prints the mean and the 99th percentile of N rounds, in microseconds.
"""

import json
import sys
import time

from learner.hosts.agenda import Agenda
from learner.hosts.agreed_limiter import AgreedLimiter
from learner.hosts.dialing import dial
from learner.hosts.hello import Hello
from learner.hosts.meeting import receive_all
from learner.hosts.peers import Peers
from learner.hosts.place import Place
from learner.hosts.proof import Token
from learner.hosts.waiting import Waiting
from seedrl.replay.rate_limiter import ratio_limiter


def main(coordinator: str, count: int, index: int, rounds: int) -> None:
    """Votes, and leaves."""
    place = Place(coordinator, count, index)
    hello, waiting = Hello(index, count, {}), Waiting(lambda: False, print)
    if place.is_first:
        links = receive_all(place, hello, waiting, Token())
    else:
        links = {0: dial(place, hello, waiting, Token())[0]}
    peers = Peers(place, links)
    limiter = AgreedLimiter(
        ratio_limiter(replay_ratio=1.0, batch_steps=1, tolerance_updates=2.0), peers, Agenda()
    )
    took = []
    for _ in range(rounds):
        limiter.holds([100])
        limiter.acted(3)
        start = time.perf_counter()
        limiter.wait_to_learn(0.0)
        took.append(1e6 * (time.perf_counter() - start))
    took.sort()
    if place.is_first:
        found = {"mean": sum(took) / rounds, "p99": took[rounds * 99 // 100]}
        print(json.dumps({name: round(value) for name, value in found.items()}))
    peers.gather("done", 0)
    peers.leave("done")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
