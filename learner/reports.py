"""Everything that reports on a run, opened and closed together; the thread that shows it.

A number: the threads of a session add it to a `Tally` or set a gauge (`report.metrics`). At each
interval the main thread takes them by `Metrics.flush`, which writes metrics.jsonl, TensorBoard and
Weights & Biases. The values become `Reports.values`; from them and the registry of env servers
(`report.env_servers`) the status thread makes a `Status` once a second. status.json, the terminal
and Prometheus show that.

An event: any thread calls `Events.report` (`report.events`). The status thread writes it to
events.jsonl and shows it on the terminal. `ProgressReporter` turns what counters show into events.
The dashboard and the commands that list runs read these files.
"""

import contextlib
import json
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from learner.build import StartFrom
from learner.checkpoints.restoring import other_experience
from learner.checkpoints.run_folder import RunFolder
from learner.checkpoints.run_records import rounds_since_best
from learner.processes.stop import ENV_SERVERS_FAILED
from learner.report.balance import costs_of
from learner.report.env_servers import EnvServers, waited_for
from learner.report.events import Events, EventSink, StandStill
from learner.report.history import draw
from learner.report.json_lines import replace_file
from learner.report.learning_signs import LearningSigns
from learner.report.metrics import Metrics, WeightsAndBiases
from learner.report.stages import ProcessorTime, num_cores
from learner.report.status import (
    ERROR,
    INTERVAL_SECONDS,
    EvaluationStatus,
    State,
    Status,
    Verdict,
    write_status,
)
from learner.report.terminal import Progress, Summary, duration, score
from learner.report.verdict import Conditions, sentence, verdict
from learner.runtime.watchdog import exit_deadline
from learner.schedule import Session
from learner.serving.hub import Hub
from learner.serving.leases import Role
from seedrl.checkpoints import Checkpoint, best_return
from seedrl.config import OWN_SERVING, Config, acts_on_tokens, learning_rate_decay_steps
from seedrl.config_io import changes, to_allow, to_json
from seedrl.errors import UserError
from seedrl.fields import fields_of
from seedrl.networks.config import NetworkConfig
from seedrl.observations import describe
from seedrl.run_files import ROLLOUTS
from seedrl.timing import WARNING_SECONDS

_CLOSE_SECONDS = 60.0
# If no episode of this many had a metric, its name is probably misspelt.
_EPISODES_WITHOUT = 20
# Weight of all looks before the newest one when the speeds of env servers are compared.
_OLDER = 0.8
# Steps without the end of an episode after which that is reported, and then at each doubling.
_STEPS_WITHOUT = 5_000

_logger = logging.getLogger(__name__)


class ProgressReporter:
    """Turns what a session's counters show into events. Used by the main thread."""

    # The acting and the learning thread only raise the counters; nothing here is called by them.
    # The status thread reads the public attributes.

    def __init__(
        self,
        config: Config,
        session: Session,
        listener: EventSink,
        clock: Callable[[], float] = time.monotonic,
        earlier: Iterable[EvaluationStatus] = (),
    ):
        """Starts with a session that is compiling."""
        # `earlier`: rounds of all sessions before this one, see `run_records.played_rounds`.
        self._target = config.evaluation.target_return
        self._max_skipped = config.learning.max_skipped_updates
        self.session = session
        self._listener = listener
        self._clock = clock
        self._compiling_since = clock()
        self.is_compiling = True
        self._has_updated = False
        self._unseen = set(config.environment.metrics)  # that no training episode has had
        # A resumed session has not seen the first episodes, with which a sign compares: all returns
        # of a run that has learned its task may be alike.
        is_resumed = session.acting.training_steps > 0
        self._signs = None if is_resumed else LearningSigns(fields_of(config))
        # Of each loss, its count in the last event, and when the next event may be.
        self._warned: dict[str, tuple[int, float]] = {}
        # Counts of updates as they were when the last finite one was seen.
        self._applied = self._skipped = 0
        self.skipped_in_a_row = 0  # since the last finite one; stays once it ends the run
        self._unended: dict[Role, int] = {"training": _STEPS_WITHOUT, "evaluation": _STEPS_WITHOUT}
        # Rounds below the target are reported no more often than metrics; `metrics.jsonl` has all.
        self._round_seconds, self._next_round = config.logging.interval_seconds, -math.inf
        self._patience = config.evaluation.patience_rounds
        self.rounds = list(earlier)  # of evaluation, in the whole run

    @property
    def last(self) -> EvaluationStatus | None:
        """The newest round of evaluation."""
        return self.rounds[-1] if self.rounds else None

    @property
    def best(self) -> EvaluationStatus | None:
        """The round with the highest mean return, the first of equal ones."""
        return max(self.rounds, key=lambda played: played.mean_return, default=None)

    @property
    def has_stalled(self) -> bool:
        """True after `evaluation.patience_rounds` rounds without a new best."""
        return 0 < self._patience <= rounds_since_best(self.rounds)

    def update(self) -> None:
        """Reports what has changed since the last call."""
        session, learning = self.session, self.session.learning
        # A compilation that has failed ends too; the session fails with its error.
        if self.is_compiling and not session.is_compiling and not session.failed.is_set():
            self.is_compiling = False
            seconds = self._clock() - self._compiling_since
            self._listener.report("learning", f"compiled in {seconds:.1f} s", seconds=seconds)
        if not self._has_updated and learning.num_applied:
            self._has_updated = True
            steps = session.acting.training_steps
            text = f"first update, at {steps:,} environment steps"
            self._listener.report("learning", text)
        self._look_at_losses()
        while session.acting.rounds:
            self._take(session.acting.rounds.popleft())

    def _look_at_losses(self) -> None:
        learning = self.session.learning
        if self.skipped_in_a_row < self._max_skipped:  # beyond it the run ends, whatever follows
            # Applied first: a finite update may come between the two.
            applied, skipped = learning.num_applied, learning.num_skipped
            if applied != self._applied:
                self._applied, self._skipped = applied, skipped
            self.skipped_in_a_row = skipped - self._skipped
        self._warn(
            "skipped",
            learning.num_skipped,
            "updates with a non-finite loss, gradient, optimizer step or running moment "
            f"({self.skipped_in_a_row:,} in a row; the run ends with {self._max_skipped:,}, "
            "learning.max_skipped_updates). Their sequences now have the lowest priority. hint: "
            "check for very large rewards or observations",
        )
        self._warn(
            "dropped",
            learning.num_stale,
            "sequences whose policy lag would exceed replay.max_lag_updates. hint: check whether "
            "an env server hangs, or is much slower than the others",
        )

    def _warn(self, verb: str, count: int, text: str) -> None:
        before, next_warning = self._warned.get(verb, (0, -math.inf))
        now, number = self._clock(), count - before
        if number and now >= next_warning:
            self._warned[verb] = (count, now + WARNING_SECONDS)
            text = f"{verb} {number:,} {text}"
            self._listener.report("learning", text, is_problem=True, number=number)

    def look_at_episodes(self) -> None:
        """Reports environments whose episodes do not end: no return is ever known of them."""
        for role, limit in self._unended.items():
            steps = self.session.acting.unended_steps(role)
            if steps < limit:
                continue
            self._unended[role] = 2 * steps
            self._listener.report(
                "learning",
                f"no episode has ended in the last {steps:,} steps of any {role} environment. "
                "hint: if episodes should be shorter, end them in the environment (of a registered "
                """id: --environment.arguments '{"max_episode_steps": 1000}')""",
                is_problem=True,
                role=role,
                steps=steps,
            )

    def look_at_metrics(self, metrics: Mapping[str, float]) -> None:
        """Reports metrics that episodes lack, and signs that a new run may not learn.

        `metrics`: of the last interval.
        """
        self._unseen -= {name for name in self._unseen if f"episode/{name}" in metrics}
        # Of a resumed run earlier episodes count too: then an interval with an episode decides.
        has_enough = metrics.get("episodes/training", 0) >= _EPISODES_WITHOUT
        if self._unseen and has_enough and "return/training" in metrics:
            names, self._unseen = sorted(self._unseen), set()
            self._listener.report(
                "learning",
                f"environment.metrics: no training episode had {' or '.join(map(repr, names))} in "
                "its last info. hint: check the info that step returns at the end of an episode",
                is_problem=True,
                names=names,
            )
        for name, text in self._signs.look(metrics).items() if self._signs else ():
            text = f"may not learn: {text}"
            self._listener.report("learning", text, is_problem=True, sign=name)

    def _take(self, played: EvaluationStatus) -> None:
        self.rounds.append(played)
        score_text = f"{score(played.mean_return)} over {played.episodes} episodes"
        text = (
            f"evaluation: {score_text}, by the parameters of update {played.updates:,} "
            f"at {played.env_steps:,} environment steps"
        )
        outcome = "below"
        if self._target is not None and played.mean_return >= self._target:
            if played.is_confirmation:
                outcome = "confirmed"
                text = f"target {self._target:g} confirmed: {score_text}"
            else:
                outcome = "nominated"
                text += f"; target {self._target:g} reached: new episodes must confirm it"
        elif played.is_confirmation:
            text = f"confirmation failed: {text.removeprefix('evaluation: ')}"
        elif self._clock() < self._next_round:
            return
        else:
            self._next_round = self._clock() + self._round_seconds
        self._listener.report("evaluation", text, **vars(played), outcome=outcome)


class Reports:
    """The terminal, numbers over time, events, and `status.json` once a second. Owns a thread."""

    # The main thread calls the public methods and sets the public attributes, each by one
    # assignment; the thread only reads them, and shows events as soon as they happen. An error in
    # it is logged, and never ends the run.

    def __init__(
        self,
        config: Config,
        name: str,
        folder: RunFolder,
        checkpoint: Checkpoint | None,
        *,
        own_host: str = "",
    ):
        """Opens the reports on a run called `name`; of a resumed run they continue.

        `own_host`: see `Progress`.
        """
        self._config, self._name, self._folder = config, name, folder
        # Without a checkpoint, earlier attempts in the folder do not count.
        env_steps, totals = 0, dict[str, float]()
        if checkpoint is not None:
            env_steps, totals = int(checkpoint.meta["env_steps"]), checkpoint.meta["totals"]
        mirrors = []
        if config.logging.wandb is not None:
            mirrors = [WeightsAndBiases(config.logging.wandb, folder.path, fields_of(config))]
        with contextlib.ExitStack() as stack:
            self.terminal = stack.enter_context(contextlib.closing(Progress(own_host=own_host)))
            self.metrics = Metrics(
                folder.path,
                mirrors=mirrors,
                totals=totals,
                # A value at the step of the checkpoint itself still holds.
                purge_step=0 if checkpoint is None else env_steps + 1,
            )
            stack.callback(self.metrics.close)
            elapsed = totals.get("elapsed_seconds", 0.0)
            self.events = Events(
                folder.path, self.terminal.show, elapsed_seconds=elapsed, env_steps=env_steps
            )
            stack.callback(self.events.close)
            self._shows = [self.terminal.look]
            if config.logging.health_bind:
                from learner.report.health import Health

                health = stack.enter_context(contextlib.closing(Health(config.logging.health_bind)))
                self._shows.append(health.look)
            self._sinks = stack.pop_all()
        self._began = time.time()
        self._state_and_since: tuple[State, float] = ("starting", self._began)
        # Set once they exist.
        self.hub: Hub | None = None
        self._num_hosts = 1
        self.address = ""  # where the run serves
        self.progress: ProgressReporter | None = None
        self.values: Mapping[str, float] = {}  # last value of each metric
        self.reason = ""  # why the run has ended; from then on it only has to be saved
        # The thread's own.
        self._env_servers = EnvServers()
        self._processor_time = ProcessorTime()
        self._balance: tuple[str, Verdict | None] = ("", None)
        self.conditions = Conditions()  # as of the last look; the main thread reads it
        # When, and the environment steps and updates then.
        self._before: tuple[float, int, int] | None = None
        self._steps = StandStill(self.events, env_steps, time.monotonic())
        self._is_over = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, UserError):
            self.reason = f"{ERROR}: {error}"
        # All is saved by now: closing the reports must not keep the process alive.
        with exit_deadline(_CLOSE_SECONDS, "all is saved; the rest did not end"):
            self.close()

    def close(self) -> None:
        """Ends the thread, and then closes all that it uses."""
        self._is_over.set()
        # Else the thread would sleep until the next second.
        self.events.wake()
        self._thread.join()
        # The thread has ended: the last look is this one, at a run that is over.
        self._has_ended, self.reason = True, self.reason or ERROR
        _guarded(self._look)
        _guarded(self.events.flush)
        self._sinks.close()

    def _run(self) -> None:
        next_look = 0.0
        while not self._is_over.is_set():
            self.events.wait(max(0.0, next_look - time.monotonic()))
            _guarded(self.events.flush)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + INTERVAL_SECONDS
                _guarded(self._look)

    def _look(self) -> None:
        if self.hub is not None:
            self._env_servers = self.hub.env_servers()
            self._gauges(self._env_servers)
        status = self.now()
        if self.address and not self.reason:
            now = time.monotonic()
            # That the start, compiling or the last round takes long is no news.
            is_busy = status.state in ("starting", "compiling")
            if is_busy or status.env_steps >= status.total_steps:
                self._steps = StandStill(self.events, status.env_steps, now)
            else:
                self._steps.look(status.env_steps, now, status.waiting_for)
        write_status(self._folder.path, status)
        for show in self._shows:
            show(status)
        acting = None if self.progress is None else self.progress.session.acting
        if acting is not None and (sample := acting.take_sample()) is not None:
            with contextlib.suppress(OSError):  # as of the status: a full disk ends nothing
                replace_file(self._folder.path / ROLLOUTS, json.dumps(sample))

    def _gauges(self, found: EnvServers) -> None:
        roles, metrics = (found.training, found.evaluation), self.metrics
        metrics.gauge("env_servers", sum(server.state != "left" for server in found.servers))
        for state in ("live", "waiting", "hung"):
            metrics.gauge(f"slots_{state}", sum(getattr(slots, state) for slots in roles))
        metrics.gauge("slots_unfilled", sum(slots.total - slots.live for slots in roles))
        metrics.gauge("slots_quarantined", found.quarantined)
        metrics.gauge("environment_failures", found.failures)
        metrics.gauge("connections_refused", found.refused)
        present = [server for server in found.servers if server.state != "left"]
        pids = [server.pid for server in present if server.host == socket.gethostname()]
        for name, seconds in self._processor_time.spent(pids).items():
            metrics.count(f"{name}_seconds", seconds)

    def now(self) -> Status:
        """The state of the run. Rates are since the call before."""
        config, progress = self._config, self.progress
        env_steps = self.events.count_steps()
        updates = 0 if progress is None else progress.session.learning.updates
        steps_per_second, updates_per_second = self._rates(env_steps, updates)
        state, now = self._state(), time.time()
        if state != self._state_and_since[0]:
            self._state_and_since = (state, now)
        waiting_for = ""
        if steps_per_second == 0 and not self.reason:
            needs_all = config.learning.schedule != "asynchronous"
            waiting_for = waited_for(self._env_servers, needs_all=needs_all)
            waiting_for = waiting_for or "acting waits until learning has caught up"
            if state in ("starting", "compiling"):
                waiting_for = state
            elif env_steps >= config.learning.total_steps:
                waiting_for = "training is complete, and the last parameters are evaluated"
        balance, found = self._balance_in(state)
        return Status(
            time_seconds=now,
            state=state,
            state_since_seconds=self._state_and_since[1],
            reason=self.reason,
            config=self._name,
            pid=os.getpid(),
            host=socket.gethostname(),
            address=self.address,
            started_seconds=self._began,
            elapsed_seconds=self.events.elapsed_seconds,
            env_steps=env_steps,
            total_steps=config.learning.total_steps,
            updates=updates,
            env_steps_per_second=steps_per_second,
            updates_per_second=updates_per_second,
            target_return=config.evaluation.target_return,
            last_evaluation=None if progress is None else progress.last,
            best_evaluation=None if progress is None else progress.best,
            waiting_for=waiting_for,
            training_slots=self._env_servers.training,
            evaluation_slots=self._env_servers.evaluation,
            env_servers=self._env_servers.servers,
            balance=balance,
            verdict=found,
            metrics=self.values,
        )

    def _balance_in(self, state: State) -> tuple[str, Verdict | None]:
        # An interval in which the run ends says nothing: the sentence before it stays.
        if state == "training":
            takes_turns = self._config.learning.schedule != "asynchronous"
            self.conditions = self._conditions()
            # Of several hosts all costs are this one's, which takes its part of the run's steps.
            rate = self.values.get("env_steps_per_second", 0.0) / self._num_hosts
            values = {**self.values, "env_steps_per_second": rate}
            costs = costs_of(values, cores=num_cores(), takes_turns=takes_turns)
            found = None if costs is None else verdict(values, costs, self.conditions)
            self._balance = sentence(self.values, costs, found), found
        return self._balance

    def _conditions(self) -> Conditions:
        servers = [each for each in self._env_servers.servers if each.state == "live"]
        servers = [each for each in servers if each.training_slots]
        rates = {}
        for each in servers:
            # Those that evaluate stand still between two rounds.
            rate = each.training_steps_per_second / each.training_slots
            rates[each.name] = rate + _OLDER * (self.conditions.rates.get(each.name, rate) - rate)
        return Conditions(
            rates,
            groups=min((each.groups - bool(each.evaluation_slots) for each in servers), default=1),
            environments=min((each.training_slots for each in servers), default=1),
            deadline_seconds=0.0 if self.hub is None else self.hub.batch_deadline_seconds,
            epochs=getattr(self._config.agent, "epochs", 1),
        )

    def _state(self) -> State:
        progress = self.progress
        if self.reason:
            return "finished" if self._has_ended else "stopping"
        if not self.address:
            return "starting"
        if not self._env_servers.training.live and not self._env_servers.evaluation.live:
            return "waiting"
        if progress is None:  # the main thread builds the system
            return "starting"
        if progress.is_compiling:
            return "compiling"
        session = progress.session
        is_complete = session.acting.training_steps >= self._config.learning.total_steps
        return "evaluating" if is_complete or session.evaluator.is_confirming else "training"

    def _rates(self, env_steps: int, updates: int) -> tuple[float, float]:
        if self.progress is None:  # the steps of earlier sessions are no rate
            return 0.0, 0.0
        before, now = self._before, time.monotonic()
        self._before = (now, env_steps, updates)
        if before is None:
            return 0.0, 0.0
        # Two looks may be at one tick of a coarse clock.
        seconds = max(now - before[0], 1e-9)
        return (env_steps - before[1]) / seconds, (updates - before[2]) / seconds

    def started(self, hub: Hub, address: str, devices: str) -> None:
        """Reports where the run serves, and from now on which env servers there are."""
        self.hub, self.address = hub, address
        workdir = str(self._folder.path)
        text = f"learner: {workdir}, serving {address}, {devices}"
        self.events.report("started", text, address=address, devices=devices, workdir=workdir)

    def compiling(self, session: Session) -> None:
        """Reports what is compiled now; status and events show this session from now on."""
        system, steps = session.system, session.acting.training_steps
        self._num_hosts = system.hosts.peers.topology.process_count
        network = getattr(self._config.agent, "network", None)
        folder = self._folder
        is_anew, is_other = folder.is_begun_anew, folder.is_other_environment
        self.metrics.record(
            "session", env_steps=steps, is_begun_anew=is_anew, is_other_environment=is_other
        )
        self.metrics.write()
        if system.taken:
            self.events.report("resumed", system.taken)
        self.events.count_steps = lambda: session.acting.training_steps
        # Of an observation a user's own network makes what it likes.
        if isinstance(network, NetworkConfig):
            text = describe(system.spec, network.torso, getattr(network, "frame_stack", 1))
            self.events.report("learning", text)
        size = f"{system.replay_bytes / 2**20:,.1f} MiB"
        text = f"replay: {size} on each device; compiling acting, then learning"
        self.events.report("learning", text, replay_bytes=system.replay_bytes)

    def end(self, reason: str, remark: str = "") -> None:
        """Reports that the run ends now and only has to be saved; `remark` is for its user."""
        self.reason = reason
        # `seedrl train` has printed the failure of its env servers already.
        is_known = reason.startswith(ENV_SERVERS_FAILED)
        shown = ENV_SERVERS_FAILED if is_known else f"{reason}{remark}"
        self.events.report("ended", f"the run ends: {shown}", reason=reason)

    def draw_curve(self) -> None:
        """Draws the learning curve, if the run is configured to."""
        config, folder = self._config, self._folder
        if not config.logging.learning_curve:
            return
        # All is saved by then: a full disk costs the picture only.
        try:
            draw(
                folder.metrics,
                folder.path / "learning_curve.png",
                title=f"{self._name}, seed {config.seed}",
                target=config.evaluation.target_return,
            )
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            self.terminal.log(f"cannot draw the learning curve: {problem}")

    def summary(self, session: Session, *, seconds: float, command: str) -> Summary:
        """How the run went, at its end, after so many seconds of this session."""
        confirmed, best = session.evaluator.confirmed, self._folder.best()
        return Summary(
            status=self.now(),
            wall_seconds=seconds,
            workdir=self._folder.path,
            confirmed_updates=None if confirmed is None else confirmed.frozen.version,
            best_return=None if best is None else best_return(best),
            best_updates=0 if best is None else best.step,
            command=command,
            to_allow=tuple(to_allow(to_json(self._config))),
            has_bounds=not acts_on_tokens(self._config),
            decay_steps=learning_rate_decay_steps(self._config),
        )


def _report_rate(events: EventSink, config: Config) -> None:
    decay_steps, steps = learning_rate_decay_steps(config), config.learning.total_steps
    if 0 < decay_steps < steps:
        text = f"the learning rate is 0 after {decay_steps:,} of {steps:,} environment steps"
        events.report("learning", f"{text} (agent.learning_rate_decay_steps)", is_problem=True)


def report_start(
    events: EventSink,
    start: StartFrom,
    config: Config,
    *,
    earlier_sessions: int = 0,
    is_alone: bool = True,
) -> None:
    """Reports the checkpoint that the run continues from, or whose parameters it takes over.

    And each field that a resumed run has otherwise than when it was saved, and if it will train
    with a learning rate of 0.
    """
    # `is_alone`: no other host shares the run, so that a replay that was saved is restored.
    # `earlier_sessions`: of this attempt; they may all have been killed too early.
    _report_rate(events, config)
    found = start.checkpoint or (start.initial and start.initial[0])
    if found is None and earlier_sessions:
        text = "no earlier session has saved a checkpoint: starting again"
        events.report("resumed", text, is_problem=True, path=None, updates=0)
    if found is None:
        return
    about: dict[str, Any] = {"updates": found.step, "path": str(found.path)}
    text = f"starting with the parameters of update {found.step:,} in {found.path}"
    if start.checkpoint is not None:
        age = max(0.0, time.time() - found.path.stat().st_mtime)  # of a clock that was set back
        about |= {"env_steps": found.meta["env_steps"], "age_seconds": age}
        replay = "replay starts empty (--checkpoint.replay saves it too)"
        if not is_alone:
            replay = "replay starts empty, as it always does on several hosts"
        elif "replay_indices" in found.meta:
            is_other = other_experience(found, config)
            replay = f"its replay is {'dropped' if is_other else 'restored'}"
        text = (
            f"resuming from update {found.step:,} and {found.meta['env_steps']:,} environment "
            f"steps, saved {duration(age)} ago in {found.path}; {replay}"
        )
    elif "evaluation" in found.meta:  # only in a best checkpoint
        which = f"{best_return(found):.4g}, update {found.step:,}"
        text = f"starting with the best parameters ({which}) in {found.path}"
    events.report("resumed", text, **about)
    if start.checkpoint is not None:
        own = {f"serving.{name}" for name in OWN_SERVING}  # addresses and keys of each session
        for field, (before, now) in changes(found.meta["config"], to_json(config)).items():
            if field not in own:
                text = f"{field}: {before} until now, {now} from here on"
                events.report("changed", text, field=field, before=before, now=now)


def _guarded(work: Callable[[], None]) -> None:
    """Logs what goes wrong: the run does not need what is only shown."""
    try:
        work()
    except Exception:
        _logger.exception("cannot write the status or the events of the run")
