"""A run on a cluster: what becomes of it when a process, an actor or a node is lost."""

import collections
import functools
import signal
import time
from collections.abc import Callable, Mapping
from typing import Self

from learner.launch.last_words import last_words
from learner.launch.restarts import Restarts
from learner.on_ray.actors import Actors, Member
from learner.on_ray.cluster import Cluster, Place
from learner.on_ray.hosted import CONFIG, GRACE_SECONDS, Report, Started
from learner.on_ray.learner_restarts import FINAL, LearnerRestarts
from learner.on_ray.nodes import Demand, for_env_server
from learner.on_ray.order import Order, Secrets
from learner.processes.stop import ENV_SERVERS_FAILED, is_repeat
from seedrl.errors import HostLostError
from seedrl.exit_codes import ExitCode
from seedrl.programs import unbegun

_LOST = 128 + signal.SIGKILL
_TURN_SECONDS, _WAITING_SECONDS = 0.5, 15.0


class Run:
    """Owns the actors of a run; used by one thread, but for `signal`. Leaving ends them all.

    A process that dies is started again where it was, one whose actor or node is lost elsewhere.
    Env servers learn a learner's new address by being started again.
    """

    def __init__(
        self,
        cluster: Cluster,
        order: Order,
        issue: Callable[[str], Secrets],
        *,
        say: Callable[[str], None],
        write: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Places nothing yet.

        Args:
          cluster: where.
          order: what.
          issue: makes the secrets of a learner at that address.
          say, write: print a line of ours, and text of the learner's.
          clock: monotonic seconds.
        """
        self._order, self._issue, self._clock = order, issue, clock
        self._say, self._write = say, write
        self._actors = Actors(cluster, self._lost, clock)
        self._learner = Member("learner")
        numbers = range(order.work.job.env_servers)
        self._env_servers = {name: Member(name) for name in map("env server {}".format, numbers)}
        self._restarts = Restarts(list(self._env_servers), order.restarts, clock)
        self._learner_restarts = LearnerRestarts(clock)
        self._signals: collections.deque[tuple[int, float]] = collections.deque()
        self._first_signal: tuple[int, float] | None = None
        self._secrets = Secrets({}, {})
        self._address = ""  # of the learner that was started last
        self._is_ending, self._reason = False, ""
        self._said: set[str] = set()  # what is said once
        self._outcome: int | None = None  # if the run ends for another reason than the learner's
        self._code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is HostLostError:
            return  # nobody can be called, and Ray ends them all
        try:
            # The learner has ended, or had its time in `wait`.
            self._actors.end(lambda member: 0.0 if member is self._learner else GRACE_SECONDS)
        except HostLostError:  # what has become of the run is known: its exit code stays
            self._say("warning: the cluster was lost while the run ended; Ray ends what is left")

    def signal(self, number: int) -> None:
        """Reports a SIGTERM, SIGINT or SIGHUP: the first asks the learner to save, a second kills.

        What arrives within a second of the first is the same request; see `is_repeat`.
        """
        self._signals.append((number, self._clock()))

    def wait(self) -> int:
        """Places the run and follows it until it is over: its `ExitCode`. Raises HostLostError."""
        self._begin(self._learner)
        while self._code is None:
            while self._signals:
                self._obey(*self._signals.popleft())
            self._actors.turn(_TURN_SECONDS)
            for name in self._restarts.take_due():
                self._begin(self._env_servers[name])
        return self._code

    def _begin(self, member: Member) -> None:
        """Starts a process where its actor is, or places that; env servers wait for a learner."""
        is_learner, order = member is self._learner, self._order
        if self._is_ending:
            return
        if member.actor is None:
            self._place(member, order.learner if is_learner else order.env_server)
        elif member.place is not None and is_learner:
            self._secrets = self._issue(member.place.address)
            files = {CONFIG: order.config, **self._secrets.learner}
            self._start(member, files, member.place.address, order.options)
        elif member.place is not None and self._learner.state == "running":
            ended, member.ended = member.ended, None
            self._start(member, self._secrets.env_server, member.name, self._address, ended)

    def _place(self, member: Member, demand: Demand) -> None:
        node = None
        if member is not self._learner:
            nodes = self._actors.nodes()
            node = for_env_server(nodes, self._used(), demand.cpus, self._learner.node)
        actor = self._actors.place(member, demand, node, self._placed)

        def say_waiting() -> None:
            if member.actor is actor and member.place is None:
                self._say_once(f"{member.name} is not placed yet: it needs {demand} of one node")

        self._actors.later(_WAITING_SECONDS, say_waiting)

    def _used(self) -> Mapping[str, int]:
        """CPUs of each node that the run uses, or is about to."""
        used = collections.Counter({self._learner.node: self._order.learner.cpus})
        for each in self._env_servers.values():
            used[each.node] += self._order.env_server.cpus
        return used

    def _start(self, member: Member, *words: object) -> None:
        member.number += 1
        member.state = "starting"
        self._restarts.begun(member.name)  # a new learner may end its rest
        method = "start_learner" if member is self._learner else "start_env_server"
        then = functools.partial(self._started, member.number)
        self._actors.call(member, then, method, member.number, self._order.work, *words)

    def _follow(self, member: Member) -> None:
        self._actors.call(member, self._reported, "follow", member.number)

    def _end(self, reason: str) -> None:
        """Asks the learner to save and end, once it runs; nothing is started any more."""
        self._is_ending, self._reason = True, reason
        if self._learner.state == "running":
            self._actors.call(self._learner, lambda member, _: None, "stop", reason)

    def _obey(self, number: int, seconds: float) -> None:
        first, self._first_signal = self._first_signal, self._first_signal or (number, seconds)
        if is_repeat(None if first is None else first[1], seconds):
            return
        by = signal.Signals(number).name
        if first is not None:
            self._finish(ExitCode.KILLED)
        elif self._learner.state == "idle":
            self._finish_without_learner(by, has_begun=bool(self._address))
        elif not self._is_ending:  # else it saves already, because of its env servers
            self._end(by)

    def _fail(self, outcome: int, line: str) -> None:
        """Ends the run because of its env servers."""
        self._say(f"seedrl: error: {line}")
        self._outcome = outcome
        if self._learner.state == "idle":
            self._finish(outcome)
        self._end(f"{ENV_SERVERS_FAILED}: {line}")
        late = "the learner did not end in time and is killed"
        self._actors.later(self._order.grace_seconds, lambda: self._finish(outcome, late))

    def _finish_without_learner(self, by: str, *, has_begun: bool) -> None:
        if has_begun:
            self._finish(ExitCode.KILLED, self._order.resumes(f"{by}, while there was no learner"))
        else:
            self._finish(ExitCode.OK, unbegun.line(by, self._order.start_command))

    def _finish(self, code: int, line: str = "") -> None:
        if line:
            self._say(line)
        self._code = code

    def _placed(self, member: Member, place: Place) -> None:
        if place.version == (wanted := self._order.version):
            self._begin(member)
        elif not self._is_ending:
            what = f"expected seedrl {wanted} on all nodes, got {place.version} on {place.address}"
            self._fail(ExitCode.USAGE, what)
        if member is self._learner and not self._address:
            for each in self._env_servers.values():
                self._begin(each)

    def _started(self, number: int, member: Member, started: Started) -> None:
        if number != member.number:
            return  # it is being started again
        assert member.place is not None
        member.state, where = "running", member.place.address
        self._follow(member)
        if member is self._learner:
            self._learner_started(started, where)
        elif not started.sees_folder:
            self._say_once(f"warning: {self._order.unshared(where)}")

    def _learner_started(self, started: Started, where: str) -> None:
        self._say(f"learner on {where}, run folder {self._order.work.workdir}")
        if self._address and not started.sees_folder:
            self._say(f"warning: {self._order.unshared(where)}; the learner began there without it")
        is_elsewhere, self._address = started.address != self._address, started.address
        if self._is_ending:
            self._end(self._reason)
        for each in self._env_servers.values():
            if each.actor is not None and (is_elsewhere or each.state == "idle"):
                self._begin(each)

    def _reported(self, member: Member, report: Report) -> None:
        if report.number != member.number:
            return  # it was started again meanwhile
        self._write(report.text)
        if report.code is None:
            self._follow(member)
            return
        member.state = "idle"
        if member is self._learner:
            self._learner_ended(report, report.code)
        elif not self._is_ending:
            self._env_server_ended(member, report, report.code)

    def _learner_ended(self, report: Report, code: int) -> None:
        # Taken before there was a learner: somebody else's.
        is_taken = code == ExitCode.ADDRESS_IN_USE and self._learner.number == 1
        if self._outcome is not None:
            self._finish(self._outcome)
        elif self._first_signal is not None and report.is_unbegun:
            by = signal.Signals(self._first_signal[0]).name
            self._finish_without_learner(by, has_begun=self._learner.number > 1)
        elif self._is_ending or code in FINAL or is_taken:
            self._finish(code)
        else:
            self._learner_died(code, f"ended with {code}")

    def _learner_died(self, code: int, how: str) -> None:
        verdict = self._learner_restarts.ended(code)
        if not verdict.refusal:
            self._say(f"the learner {how}; it resumes from {self._order.work.workdir}")
            self._actors.later(verdict.pause_seconds, lambda: self._begin(self._learner))
        else:
            what = f"the learner {how}, {verdict.refusal}"
            self._finish(code, f"seedrl: error: {self._order.resumes(what)}")

    def _env_server_ended(self, member: Member, report: Report, code: int) -> None:
        ended = last_words(code, report.last_line)
        if ended.kind == "in vain":
            self._fail(code, f"{member.name} {ended.verb}: {ended.reason}")
        elif ended.kind == "died" and member.place is not None:
            log = f"its log, {member.place.address}:{report.log}, ends: {ended.reason}"
            self._env_server_died(member, f"ended with {code}; {log}", code)

    def _env_server_died(self, member: Member, how: str, code: int | None = None) -> None:
        what = f"{member.name} {how}"
        verdict = self._restarts.died(member.name)
        member.ended = code if verdict == "again" else None  # not heard of after a rest
        match verdict:
            case "again":
                self._say(f"{what}; it is started again")
                self._begin(member)
            case "rests":
                self._say(f"{what}; the run goes on without it, and it is tried again")
            case "all rest":
                self._fail(ExitCode.FAILING_ENVIRONMENT, what)

    def _lost(self, member: Member, why: str) -> None:
        """An actor is gone, or its node."""
        place, member.place, member.ended = member.place, None, None
        how = f"is lost{'' if place is None else f' on {place.address}'}: {why}"
        if member is not self._learner:
            if self._is_ending:
                return
            nodes = {node.id for node in self._actors.nodes()}
            if place is None or place.node in nodes:
                self._env_server_died(member, how)
            else:  # that a node goes is no fault of an env server: it has no part in its budget
                self._say(f"{member.name} {how}; it is started again")
                self._begin(member)
        elif self._is_ending:
            code = ExitCode.KILLED if self._outcome is None else self._outcome
            self._finish(code, self._order.resumes(f"the learner {how}"))
        else:
            self._learner_died(_LOST, how)

    def _say_once(self, line: str) -> None:
        # One line for all env servers: they differ in their number and their node.
        if (kind := line.partition(" ")[0]) not in self._said:
            self._said.add(kind)
            self._say(line)
