"""This host's part of a session that several hosts share."""

from learner.acting.totals import Totals
from learner.hosts.agenda import Hosts
from learner.hosts.agreed_limiter import AgreedLimiter
from learner.hosts.jax_processes import leave
from learner.learning.loop import Learning
from learner.reporting.metrics import Metrics
from learner.threads.rate_limiter import RateLimiter, SharedLimiter
from seedrl.config import Config
from seedrl.replay.rate_limiter import Limiter


def limiter_of(hosts: Hosts, limiter: Limiter) -> SharedLimiter:
    """What threads share, and hosts if there are several."""
    return RateLimiter(limiter) if hosts.is_alone else AgreedLimiter(limiter, *hosts)


def take_part(
    hosts: Hosts,
    config: Config,
    totals: Totals,
    learning: Learning,
    limiter: SharedLimiter,
    metrics: Metrics,
) -> None:
    """Lets this host count what the others act, and take snapshots where all do."""
    if not isinstance(limiter, AgreedLimiter):
        return
    totals.steps.append(0)  # of the other hosts; the learning thread adds to it
    frames_per_step, is_reported = config.environment.frames_per_step, hosts.peers.place.is_first

    def on_others(steps: int) -> None:
        totals.steps[-1] += steps
        if steps and is_reported:  # what the first host reports is the run's
            metrics.count("env_steps", steps)
            metrics.count("frames", steps * frames_per_step)

    limiter.on_others = on_others
    hosts.agenda.take = lambda: learning.final_snapshot(config.checkpoint.replay)


def depend_on_no_service(hosts: Hosts, learning: Learning) -> None:
    """Leaves jax's service after the first update, where that was not possible before."""
    if not hosts.is_alone and learning.num_applied + learning.num_skipped:
        leave()
