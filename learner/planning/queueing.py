"""How fast customers go round a closed network: mean value analysis."""

from collections.abc import Sequence
from typing import NamedTuple


class Station(NamedTuple):
    """Something that all customers pass once a round, first come, first served.

    Attributes:
      name: what it is.
      demand_seconds: what one customer takes of it in a round.
      servers: c, how many customers it serves at a time.
    """

    name: str
    demand_seconds: float
    servers: int


class _Queue:
    """A station and who is there on average: M/M/c, its customers as exponential as in theory."""

    def __init__(self, station: Station):
        self._demand = station.demand_seconds
        self._servers = station.servers
        self._length = 0.0
        # That 0..c-1 are there.
        self._shares = [1.0] + [0.0] * (station.servers - 1)

    def response(self) -> float:
        """Seconds that one customer more would be there: its own, and those who wait before it."""
        c = self._servers
        free = sum((c - 1 - j) * share for j, share in enumerate(self._shares[: c - 1]))
        return self._demand / c * (1 + self._length + free)

    def advance(self, throughput: float, response: float) -> None:
        """One customer more goes round; all do so at `throughput` a second."""
        c, busy = self._servers, throughput * self._demand
        self._length = throughput * response
        for j in reversed(range(1, c)):
            self._shares[j] = busy / j * self._shares[j - 1]
        others = sum((c - j) * self._shares[j] for j in range(1, c))
        # Where all servers are busy rounding makes it a little less than nothing.
        self._shares[0] = max(0.0, 1 - (busy + others) / c)


def throughput(stations: Sequence[Station], *, delay_seconds: float, customers: int) -> float:
    """Rounds a second that N customers make together.

        X(n) = n / (Z + Σᵢ Rᵢ(n)),  Rᵢ(n) = Dᵢ/cᵢ (1 + Qᵢ(n-1) + Σ_{j≤c-2} (c-1-j) pᵢ(j|n-1))

    Who arrives at a station finds there what the network with one customer fewer has there on
    average (the arrival theorem); so n grows from 1 to N, with Qᵢ(n) = X(n) Rᵢ(n).

    Args:
      stations: what customers wait for each other at.
      delay_seconds: Z, what a round takes besides, whoever else there is. Less than nothing where
        two stations are passed at the same time, as long as Z + Σᵢ Dᵢ is not.
      customers: N.

    Exact for exponential service times; those here vary less, so that queues are shorter, but who
    is answered together comes back together, which makes them longer.

    Source: Reiser and Lavenberg 1980, Mean-value analysis of closed multichain queuing networks,
    https://doi.org/10.1145/322186.322195.
    """
    queues = [_Queue(station) for station in stations]
    rate = 0.0
    for number in range(1, customers + 1):
        responses = [queue.response() for queue in queues]
        rate = number / (delay_seconds + sum(responses))
        for queue, response in zip(queues, responses, strict=True):
            queue.advance(rate, response)
    return rate
