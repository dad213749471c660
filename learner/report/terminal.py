"""A run on the terminal: live, one line for each interval, or its summary."""

import math
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from learner.report.events import Event
from learner.report.stages import STAGES
from learner.report.status import NO_IMPROVEMENT, OUT_OF_TIME, STOPPED, EvaluationStatus, Status
from seedrl.exit_codes import ExitCode

_SIGNIFICANT = 4
# Of a bar of time: the largest stages, and the rest.
_FILLS = "█▓▒░"
_BAR_CELLS = 20
_LARGE = 1e9

# Metrics with their formats; a missing one is left out.
CELLS: dict[str, dict[str, str]] = {
    "pace": {
        "replay_ratio": "ratio {:.2f}",
        "replay_ratio_target": "of {:g}",
        "policy_lag_updates": "lag {:.1f} updates",
        "serving_lag_updates": "of which {:.1f} in serving",
    },
    "learning": {"loss": "loss {:.3g}", "gradient_norm": "gradient {:.3g}"},
    "line": {
        "env_steps": "{:,.0f} steps",
        "env_steps_per_second": "{:,.0f}/s",
        "updates": "{:,.0f} updates",
        "replay_ratio": "ratio {:.2f}",
        "policy_lag_updates": "lag {:.1f}",
        "loss": "loss {:.3g}",
        "skipped_updates": "{:,.0f} skipped",
    },
}


def rows(status: Status) -> Iterator[tuple[str, str]]:
    """The panel's rows: label and text."""
    metrics = status.metrics
    yield "progress", _progress(status)
    yield "return", "   ".join(_returns(status))
    yield "env servers", _env_servers(status)
    updates = f"{status.updates:,}   {status.updates_per_second:,.1f}/s"
    if skipped := metrics.get("skipped_updates"):
        updates += f"   {skipped:,.0f} skipped"
    yield "updates", updates
    if text := status.reason or _state(status) or status.balance:
        yield "now", text
    for side in STAGES:
        if text := time_bar(side, metrics):
            yield f"{side} time", text
    for label in ("pace", "learning"):
        if cells := list(_cells(label, metrics)):
            yield label, "   ".join(cells)


def panel(status: Status) -> Panel:
    """The rows in a frame, as a terminal shows them."""
    table = Table.grid(padding=(0, 3))
    for row in rows(status):
        table.add_row(*row)
    title = f"{status.config} · {duration(status.elapsed_seconds)} · {status.state}"
    return Panel(table, title=title, expand=False)


def line(status: Status) -> str:
    """The same, short, if there is no terminal."""
    metrics = status.metrics
    cells = list(_cells("line", metrics))
    if "env_steps" in metrics:  # the first interval may have none
        cells[0] += f" ({metrics['env_steps'] / status.total_steps:.0%})"
    if text := _state(status):
        cells.append(text)
    return "  ".join((*cells, *_returns(status, is_short=True)))


def _cells(label: str, metrics: Mapping[str, float]) -> Iterator[str]:
    for name, form in CELLS[label].items():
        value = metrics.get(name, math.nan)
        if math.isfinite(value) and (value or name != "skipped_updates"):
            yield form.format(value)


def time_bar(side: str, metrics: Mapping[str, float]) -> str:
    """Where the time of a side goes, as a bar with its largest stages; empty if not measured."""
    names = {stage: f"{side}_{stage}_share" for stage in STAGES[side]}
    shares = {stage: metrics[name] for stage, name in names.items() if name in metrics}
    if f"{side}_waits_share" not in metrics or len(shares) < len(_FILLS):
        return ""
    shown = sorted(shares.items(), key=lambda each: -each[1])[: len(_FILLS) - 1]
    shown.append(("rest", max(0.0, 1 - sum(share for _, share in shown))))
    parts = list(zip(_FILLS, shown, strict=True))
    bar = "".join(fill * round(_BAR_CELLS * share) for fill, (_, share) in parts)
    return "   ".join((bar, *(f"{fill} {stage} {share:.0%}" for fill, (stage, share) in parts)))


def _progress(status: Status) -> str:
    share = status.env_steps / status.total_steps
    text = f"{status.env_steps:,} of {status.total_steps:,} steps ({share:.0%})"
    text += f"   {status.env_steps_per_second:,.0f}/s"
    # Over an interval of metrics: from one second to the next it would jump.
    rate = status.metrics.get("env_steps_per_second", 0.0)
    left = status.total_steps - status.env_steps
    if rate > 0 and left > 0 and not status.reason:
        text += f"   {duration(left / rate)} left"
    return text


def _returns(status: Status, *, is_short: bool = False) -> Iterator[str]:
    if "return/training" in status.metrics:
        yield f"training {score(status.metrics['return/training'])}"
    if (last := status.last_evaluation) is not None:
        yield f"evaluation {score(last.mean_return)}"
    if is_short:
        return
    best = status.best_evaluation
    # Else the same number would stand there twice.
    if best is not None and last is not None and best.mean_return > last.mean_return:
        yield f"best {score(best.mean_return)} at {best.env_steps:,} steps"
    if status.target_return is not None:
        yield f"target {status.target_return:g}"


def _env_servers(status: Status) -> str:
    present = [server for server in status.env_servers if server.state != "left"]
    roles = (status.training_slots, status.evaluation_slots)
    cells = [
        f"{len(present)} with {sum(server.environments for server in present)} environments",
        f"{roles[0].live} of {roles[0].total} train",
        f"{roles[1].live} of {roles[1].total} evaluate",
    ]
    for text, number in (
        ("waited for", sum(slots.waiting for slots in roles)),
        ("hung", sum(slots.hung for slots in roles)),
        ("disabled", sum(server.quarantined for server in present)),
        ("failures", sum(server.failures for server in status.env_servers)),
    ):
        if number:
            cells.append(f"{number} {text}")
    return "   ".join(cells)


def _state(status: Status) -> str:
    """What delays the run at present; empty if nothing does."""
    if status.state == "compiling":
        return f"compiling for {status.time_seconds - status.state_since_seconds:.0f} s"
    if status.waiting_for:
        return f"waiting: {status.waiting_for}"
    return ""


def evaluation_text(played: EvaluationStatus | None) -> str:
    """A round of evaluation in words."""
    if played is None:
        return "none"
    text = f"{score(played.mean_return)} over {played.episodes} episodes"
    return f"{text}, at {played.env_steps:,} environment steps"


def duration(seconds: float) -> str:
    """`1:02:03`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def score(value: float) -> str:
    """A return with four significant digits, so that 0.95 and 1 differ, and 475 and 480."""
    if not math.isfinite(value) or abs(value) >= _LARGE:
        return f"{value:.{_SIGNIFICANT}g}"
    # Digits before the point, at least the 0.
    before_point = 1 if abs(value) < 1 else int(math.log10(abs(value))) + 1
    return f"{value:,.{max(0, _SIGNIFICANT - before_point)}f}"


class Progress:
    """Shows a run: a live panel on a terminal, else one line for each interval of metrics."""

    # The status thread calls `look` and `show`; `close` follows its end. Any thread may `log`.

    def __init__(self, console: Console | None = None, *, own_host: str = ""):
        """`own_host`: of env servers whose refusal ends the run, by an error with the reason."""
        self._own_host = own_host
        # `learner.report.output` has replaced the stream: rich ends a process that cannot write.
        self._console = console or Console(file=sys.stderr)
        self._shown: Mapping[str, float] = {}  # metrics of the last line
        self._live: Live | None = None
        if self._console.is_terminal:
            # Without its own thread that refreshes: it could die unnoticed.
            starting = Panel("starting", title="seedrl", expand=False)
            self._live = Live(starting, console=self._console, auto_refresh=False)
            self._live.start()

    def look(self, status: Status) -> None:
        """Takes the state of the run: the next panel, or a line if its metrics are new."""
        if self._live is not None:
            self._live.update(panel(status), refresh=True)
        elif status.metrics != self._shown:
            self._shown = status.metrics
            # Not the end of the interval: events since then have been shown.
            self.log(f"{duration(status.elapsed_seconds)}  {line(status)}")

    def show(self, event: Event) -> None:
        is_refusal = event.kind == "server_refused" and self._own_host
        if is_refusal and event.fields["server"].startswith(f"{self._own_host}:"):
            return
        warning = "warning: " if event.is_problem else ""
        self.log(f"{duration(event.elapsed_seconds)}  {warning}{event.text}")

    def log(self, line: str) -> None:
        """Prints a line, above the panel if there is one."""
        # Never broken at the terminal's width, for programs read it too; brackets are no markup.
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leaves the last panel standing and gives the terminal back."""
        if self._live is not None:
            self._live.stop()


class Summary(NamedTuple):
    """How a training run went."""

    status: Status
    wall_seconds: float  # of this session, from the start of the learner
    workdir: Path
    confirmed_updates: int | None = None  # of the parameters that have confirmed the target
    best_return: float | None = None  # of the best checkpoint, if there is one
    best_updates: int = 0
    command: str = ""  # of the user
    to_allow: tuple[str, ...] = ()  # code that the configuration names and that is not installed
    has_bounds: bool = True  # `seedrl bounds` can measure it
    decay_steps: int = 0  # environment steps after which the learning rate is 0, if above 0

    @property
    def has_missed(self) -> bool:
        """True if the run is over, by steps, time or patience, without a confirmed target."""
        status = self.status
        is_over = status.reason.startswith((OUT_OF_TIME, NO_IMPROVEMENT))
        is_over |= status.env_steps >= status.total_steps
        # A signal while the last parameters are played leaves it undecided.
        is_over &= not status.reason.startswith(STOPPED)
        return status.target_return is not None and self.confirmed_updates is None and is_over

    @property
    def exit_code(self) -> ExitCode:
        """How the process of the run ends."""
        return ExitCode.TARGET_MISSED if self.has_missed else ExitCode.OK


def summary_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    """Label and text of each line, with the commands to continue with last."""
    status, metrics = summary.status, summary.status.metrics
    missed = " (exit code 1: the target was not confirmed)"
    yield "ended", status.reason + missed * summary.has_missed
    yield "last evaluation", evaluation_text(status.last_evaluation)
    if status.best_evaluation != status.last_evaluation:
        yield "best evaluation", evaluation_text(status.best_evaluation)
    run_seconds = metrics.get("elapsed_seconds", 0.0)
    rate = f", {status.env_steps / run_seconds:,.0f}/s on average" if run_seconds else ""
    yield "environment steps", f"{status.env_steps:,} of {status.total_steps:,}{rate}"
    yield "updates", _updates(summary)
    folder = shlex.quote(str(summary.workdir))
    allow = f" {shlex.join(['--allow', *summary.to_allow])}" if summary.to_allow else ""
    if status.balance:
        measure = f"; measure it: seedrl bounds {folder}{allow}" * summary.has_bounds
        yield "balance", f"{status.balance}{measure}"
    is_resumed = run_seconds - summary.wall_seconds > 1.0  # the two clocks start apart
    whole = f", {duration(run_seconds)} with earlier sessions" * is_resumed
    yield "wall time", duration(summary.wall_seconds) + whole
    yield "run directory", folder
    yield "evaluate it", f"seedrl evaluate {folder}{allow}"
    if summary.best_return is not None:
        text = f"{score(summary.best_return)} after {summary.best_updates:,} updates"
        yield "best checkpoint", f"{text}: seedrl evaluate {folder} --best{allow}"
    yield "resume it", resume_command(summary)


def _updates(summary: Summary) -> str:
    updates, metrics = summary.status.updates, summary.status.metrics
    if not updates:
        if skipped := metrics.get("skipped_updates"):
            return f"none; {skipped:,.0f} skipped, because something was not finite"
        # Untrained parameters may have reached the target.
        why = "; the run ended before it had compiled and stored enough time steps"
        return f"none{why * (summary.confirmed_updates is None)}"
    lag = f"{metrics.get('policy_lag_updates', 0.0):.1f} updates of policy lag"
    ratio = metrics.get("replay_ratio", 0.0)  # an on-policy queue has none
    return f"{updates:,}, {f'replay ratio {ratio:.2f}, ' * (ratio > 0)}{lag}"


def resume_command(summary: Summary) -> str:
    """The command that continues the run, beyond the limit that has ended it."""
    status, steps = summary.status, str(2 * summary.status.total_steps)
    is_complete = status.env_steps >= status.total_steps
    if summary.command.startswith(("seedrl train ", "seedrl resume ")):
        words = ["seedrl", "resume", str(summary.workdir)]
        words += ["--allow", *summary.to_allow] if summary.to_allow else []
    else:  # `python -m learner`, whose env servers are others' to start
        words = resuming(summary.command, summary.workdir)
    # With the same limit the run would end at once.
    for is_reached, flag, value in (
        (is_complete, "--learning.total-steps", steps),
        (
            is_complete and 0 < summary.decay_steps < int(steps),
            "--agent.learning-rate-decay-steps",
            steps,
        ),
        (summary.confirmed_updates is not None, "--evaluation.target-return", "None"),
        (status.reason.startswith(OUT_OF_TIME), "--learning.max-seconds", "None"),
        (status.reason.startswith(NO_IMPROVEMENT), "--evaluation.patience-rounds", "0"),
    ):
        words += [flag, value] if is_reached else []
    return shlex.join(words)


def resuming(command: str, workdir: Path) -> list[str]:
    """The words of the user's command for the same run: with its folder, from its checkpoint."""
    words = shlex.split(command)
    # If a flag is given twice, the last one counts. `seedrl launch` has no `--resume`.
    resumes = any(word.startswith("--resume") for word in words)
    return [*words, "--workdir", str(workdir), *(["--resume", "auto"] if resumes else [])]


def print_summary(summary: Summary) -> None:
    out = Console(file=sys.stdout)
    for label, value in summary_rows(summary):
        out.print(f"{label:<18} {value}", markup=False, highlight=False, soft_wrap=True)
