"""How often a processor that has been asleep is woken: that costs more than one at work."""

# After so long without work what a thread needs is in no cache any more, and its core sleeps. With
# it fleets of 1 to 128 env servers of a quiet Xeon (a96f32b) are explained best: of what a message
# costs more with one of 50 ms a step, half is left with eight and a tenth with 32.
COOL_SECONDS = 0.004


def cold_share(cycle_seconds: float, messages: float) -> float:
    """Which share of messages finds that nobody has arrived for `COOL_SECONDS`, τ.

    N = `messages` arrive once in C = `cycle_seconds` each, at any time:

        (1 - τ / C)^N

    and none does if each arrives more often than that.
    """
    return float(max(0.0, 1 - COOL_SECONDS / cycle_seconds) ** messages)
