"""Which signals are one request to end a run: some programs send theirs twice."""

# `timeout` of the coreutils signals the process that it has started, then that process's group:
# the second arrives microseconds after the first. A person needs longer to ask again.
_REPEAT_SECONDS = 1.0


def is_repeat(first: float | None, now: float) -> bool:
    """Whether a signal at `now` belongs to the request that arrived at `first` (None: none has).

    Both are seconds of one monotonic clock.
    """
    return first is not None and now - first < _REPEAT_SECONDS
