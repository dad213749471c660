"""Says how many slots are filled, once that has settled."""

from learner.reporting.events import Listener
from learner.reporting.status import Slots

# Env servers that start together, or return at once, are not worth a line each.
_SETTLED_SECONDS = 10.0


class Vacancies:
    """Looks at how many slots have an env server, and says so where some have none.

    Used by one thread. A number counts once it has been the same for 10 s; each is said once, and
    that all slots are filled only after something else has been said.
    """

    def __init__(self, listener: Listener, now: float, *, learns_without_all: bool = True):
        """`learns_without_all`: whether the run goes on with slots that nobody fills."""
        self._listener = listener
        self._learns_without_all = learns_without_all
        self._seen, self._since = (0, 0), now
        self._said: tuple[int, int] | None = None

    def look(self, training: Slots, evaluation: Slots, now: float) -> None:
        """Takes how many there are by now."""
        filled = (training.live, evaluation.live)
        if filled != self._seen:
            self._seen, self._since = filled, now
        is_full = filled == (training.total, evaluation.total)
        # Where nobody is, others say whom the run waits for.
        is_news = any(filled) and filled != self._said and not (is_full and self._said is None)
        if not is_news or now - self._since < _SETTLED_SECONDS:
            return
        self._said = filled
        total = training.total + evaluation.total
        number = total if is_full else sum(filled)
        text = f"{number} of {total} slots filled"
        if not is_full:
            text += (
                f" ({training.live} of {training.total} train, {evaluation.live} of "
                f"{evaluation.total} evaluate), {self._what_follows(training)}"
            )
        self._listener.say("slots_filled", text, filled=number, slots=total)

    def _what_follows(self, training: Slots) -> str:
        if not training.live:
            return "learning from nothing new until an env server trains"
        if self._learns_without_all or training.live == training.total:
            return "learning with those"
        return "learning waits for all that train (learning.regime)"
