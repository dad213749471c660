"""Playing a recording to a learner: streams resume where they were, instead of beginning again."""

from learner.serving.core import Serving


class PlaybackError(Exception):
    """This learner cannot be played a recording; the text is one line for its env server."""


def first_row(serving: Serving) -> int:
    """The row of every stream from which a recording is played now.

    Raises PlaybackError outside of lock step, where streams are not at one row.
    """
    if not serving.rule.is_complete:
        raise PlaybackError(
            "this learner does not run in lock step, so it cannot be played a recording; set "
            "learning.regime to lock_step, or start the env server without --play"
        )
    return serving.num_batches
