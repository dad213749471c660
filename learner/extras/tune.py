"""Settings of serving that make a run faster on this machine, found by measuring.

One knob changes at a time, and stays changed if the new setting is faster than the best one so far
in measurements in turn. Nothing is changed that decides what is learned from a step: no replay
ratio or batch. The number of environments may change, and with it how many streams of experience
there are; for an on-policy agent up to the sequences of an update, beyond which its policy lag
grows.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from learner.extras.balance import environments_each, scaled
from learner.extras.bench.measuring import Pace, interleave, ratios
from learner.extras.bench.system import System
from seedrl.config import Config, check
from seedrl.errors import ConfigError
from seedrl.fields import with_fields
from seedrl.replay.queue import QueueConfig

# What a setting has to be faster than the best one, to be kept: less is noise.
LEAST_GAIN = 0.03
_MOST_GROUPS = 4
# In the order in which they are tried. "split": the same environments, on more env servers.
KNOBS = ("env_servers", "split", "environments", "groups", "batch_deadline_seconds")


class Setting(NamedTuple):
    """What the knobs set."""

    env_servers: int
    environments: int  # that train, of each env server
    groups: int
    batch_deadline_seconds: float

    def moved(self, knob: str, *, up: bool) -> "Setting | None":
        """With one of KNOBS turned by a step; None if it is at its end."""
        if knob == "split":
            if (self.environments if up else self.env_servers) % 2:
                return None
            factor = 2 if up else 0.5
            number, each = int(self.env_servers * factor), int(self.environments / factor)
            return self._replace(env_servers=number, environments=each)
        value = getattr(self, knob)
        if knob == "groups":
            new = value + (1 if up else -1)
            is_allowed = 1 <= new <= min(_MOST_GROUPS, self.environments)
        else:
            new = value * 2 if up else value / 2
            is_allowed = isinstance(value, float) or new >= 1
            new = new if isinstance(value, float) else int(new)
        return self._replace(**{knob: new}) if is_allowed and new != value else None

    def fields(self) -> dict[str, Any]:
        """The fields of a configuration that it sets, as a profile has them."""
        return {
            "launch.env_servers": self.env_servers,
            "launch.envs_per_server": 0,  # those that evaluate are shared out, too
            "launch.groups": self.groups,
            "serving.training_slots": self.env_servers * self.environments,
            "serving.batch_deadline_seconds": self.batch_deadline_seconds,
        }

    def applied(self, config: Config) -> Config:
        """The configuration with it."""
        return with_fields(config, self.fields())


class Move(NamedTuple):
    """A setting that was tried, compared with the best one before."""

    setting: Setting
    gain: float  # 0.25 is a quarter faster
    is_kept: bool
    error: str = ""  # why it cannot run


def setting_of(config: Config) -> Setting:
    launch, deadline = config.launch, config.serving.batch_deadline_seconds
    # Without `envs_per_server` more env servers than slots are not started.
    number = min(launch.env_servers, config.serving.training_slots)
    return Setting(number, environments_each(config), launch.groups, float(deadline))


def climb(
    start: Setting, gain_over: Callable[[Setting, Setting], float], is_over: Callable[[], bool]
) -> Iterator[Move]:
    """Turns each knob up while that makes it faster, else down, until nothing does.

    `gain_over(best, new)` measures: 0.25 is a quarter faster. It raises ConfigError if `new` cannot
    run.
    """
    best, tried, has_moved = start, {start}, True
    while has_moved:
        has_moved = False
        for knob in KNOBS:
            for up in (True, False):
                while (new := best.moved(knob, up=up)) is not None and new not in tried:
                    if is_over():
                        return
                    tried.add(new)
                    try:
                        gain = gain_over(best, new)
                    except ConfigError as error:  # what was found before stays
                        yield Move(new, 0.0, False, str(error))
                        break
                    is_kept = gain >= LEAST_GAIN
                    yield Move(new, gain, is_kept)
                    if not is_kept:
                        break
                    best, has_moved = new, True


@contextlib.contextmanager
def running(config: Config, setting: Setting) -> Iterator[Callable[[float], float]]:
    """Starts a system with a setting; gives a function that measures its steps/s for some seconds.

    Raises ConfigError if it cannot run.
    """
    with System(scaled(setting.applied(config), setting.env_servers, 0)) as system:
        system.run_until(lambda: system.parts.learning.updates > 0)

        def rate(seconds: float) -> float:
            interval = system.run(seconds, by_updates=True)
            return interval.steps / interval.seconds

        yield rate


def tune(config: Config, pace: Pace, *, seconds: float, most_env_servers: int) -> Iterator[Move]:
    """Tries settings on this machine for at most `seconds`; yields each once it is measured.

    Raises ConfigError if the configuration cannot run as it is.
    """
    end, longest = time.monotonic() + seconds, 0.0
    is_on_policy = isinstance(config.replay, QueueConfig)
    most_slots = max(config.learning.batch_sequences, config.serving.training_slots)
    with contextlib.ExitStack() as stack:
        # The best one so far and the one that it is compared with: memory is for two.
        started: dict[Setting, tuple[Callable[[float], float], contextlib.ExitStack]] = {}

        def rate(setting: Setting) -> Callable[[], float]:
            if setting not in started:
                own = stack.enter_context(contextlib.ExitStack())
                started[setting] = own.enter_context(running(config, setting)), own
            return lambda: started[setting][0](pace.seconds)

        def gain_over(best: Setting, new: Setting) -> float:
            nonlocal longest
            if new.env_servers > most_env_servers:
                raise ConfigError(
                    f"expected at most {most_env_servers} env servers (--most-env-servers)"
                )
            # With more of them runs made up to three times the steps per second, and needed as many
            # more steps; with 1,024 IMPALA failed (docs/performance_notebook.md).
            if is_on_policy and (slots := new.env_servers * new.environments) > most_slots:
                raise ConfigError(
                    f"expected at most {most_slots} training slots, got {slots}: more than "
                    "learning.batch_sequences, and an on-policy agent learns worse"
                )
            begun = time.monotonic()
            for setting in started.keys() - {best}:
                started.pop(setting)[1].close()
            measures = {"best": rate(best)}
            check(new.applied(config))  # with as much in replay as a run needs
            measures["new"] = rate(new)
            found = interleave(measures, pace.rounds)
            longest = max(longest, time.monotonic() - begun)
            return statistics.median(ratios(found["new"], found["best"])) - 1

        start = setting_of(config)
        rate(start)  # what cannot run at all ends the command
        yield from climb(start, gain_over, lambda: time.monotonic() + longest >= end)
