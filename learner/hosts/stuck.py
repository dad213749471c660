"""Work that never ends, of this host or of another one that it waits for."""

from learner.hosts.host_loss import exit_lost
from learner.hosts.peers import Peers
from learner.hosts.waiting import named
from learner.threads.watchdog import Watchdog, exit_hung
from seedrl.exit_codes import ExitCode

# By then a host whose thread hangs has ended, with a code that says so, which ends the others. The
# first host waits so long for it; the others twice as long, for they do not know whom it waits for.
_OTHERS_SECONDS = 30.0


def end_if_stuck(peers: Peers, seconds: float, watchdog: Watchdog) -> None:
    """Ends the process at once: nothing can be saved or joined while a thread hangs.

    Called several times a second, by the watchdog's thread.

    Args:
      peers: the hosts that threads may wait for.
      seconds: what a piece of work may take.
      watchdog: knows which threads are late.
    """
    if not (names := watchdog.late(seconds)):
        return
    if own := [name for name in names if not peers.waited_for(name)]:
        exit_hung(
            f"{' and '.join(own)} finished nothing for {seconds:.0f} seconds "
            "(logging.stuck_seconds)",
            ExitCode.TEMPORARY,
        )
    seconds += _OTHERS_SECONDS if peers.place.is_first else 2 * _OTHERS_SECONDS
    if (late := watchdog.late(seconds)) and (missing := peers.waited_for(late[0])):
        text = f"{named(missing)} of {peers.place.num_hosts} did not answer for {seconds:.0f} s"
        peers.fail(text)  # or the others would name this host
        exit_lost(text)
