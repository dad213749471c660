"""What environments look like: not known yet, proposed by an env server, or agreed."""

from collections import deque

import grpc

from learner.serving.leases import Lease
from learner.serving.peer import EndError
from seedrl.specs import EnvSpec
from seedrl.wire.printable import LONGEST_FROM_LEARNER, printable

# Whoever returns with one of them is refused without another try.
_MOST_UNFIT = 16


class Agreement:
    """The one spec of a run's environments. Guarded by the hub's lock.

    A checkpoint gives it, or the first env server that sends a step proposes it. Then it is on
    trial: the run finds out whether its agent and its memory suit it. Env servers of other
    environments are asked to return as long as that takes, for they may be the right ones.

    Attributes:
      spec: the one; None as long as there is none.
      is_agreed: whether an env server has built that.
    """

    def __init__(self, spec: EnvSpec | None, *, is_tried: bool):
        """`spec` is a checkpoint's; without one, `is_tried` if a proposal is on trial first."""
        self.spec = spec
        self.is_agreed = False
        self._is_final = spec is not None or not is_tried
        self._proposers: list[Lease] = []
        self._unfit: deque[tuple[EnvSpec, str]] = deque(maxlen=_MOST_UNFIT)

    def check(self, built: EnvSpec) -> None:
        """Raises EndError if an env server has built what the run does not want, or not now."""
        for spec, reason in self._unfit:
            if spec == built:
                raise _unfit(reason)
        difference = [] if self.spec is None else self.spec.difference(built)
        if not difference:
            return
        text = "; ".join(difference)
        if not self._is_final:
            raise EndError(
                grpc.StatusCode.UNAVAILABLE,
                f"the learner finds out whether it can use another environment: {text}",
            )
        owner = "the one that the learner trains on" if self.is_agreed else "the checkpoint's"
        advice = "" if self.is_agreed else "; restore the config or start a new workdir"
        raise EndError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"this environment differs from {owner}: {text}{advice}",
        )

    def take(self, built: EnvSpec, lease: Lease, *, has_stepped: bool) -> bool:
        """Takes what was checked; whether it has become the one."""
        if has_stepped and not self._is_final:
            self._proposers.append(lease)
        if self.is_agreed or not (has_stepped or self.spec is not None):
            return False
        self.spec, self.is_agreed = built, True
        return True

    def settle(self, reason: str) -> tuple[list[Lease], EndError | None]:
        """Ends the trial: the run uses it or, if there is a `reason` why not, there is none again.

        Returns whose connections end, and how; nobody's if it is used, or was not on trial.
        """
        if self._is_final or not reason or self.spec is None:
            self._is_final = True
            self._proposers.clear()
            return [], None
        self._unfit.append((self.spec, reason))
        self.spec, self.is_agreed = None, False
        proposers, self._proposers = self._proposers, []
        return proposers, _unfit(reason)


def _unfit(reason: str) -> EndError:
    return EndError(grpc.StatusCode.FAILED_PRECONDITION, printable(reason, LONGEST_FROM_LEARNER))
