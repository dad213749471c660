"""The record of a day: JSON for programs, Markdown for people, and all logs in one archive."""

import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# What a run's folder says of it; its checkpoints are too large to travel.
_OF_A_RUN = ("config.json", "command.txt", "events.jsonl", "metrics.jsonl", "status.json")


def write(folder: Path, out: Path, outcomes: Sequence[Mapping[str, Any]], commit: str) -> None:
    """Writes record.json, record.md and logs.tar.gz into `out`, from what is in `folder`."""
    out.mkdir(parents=True, exist_ok=True)
    facts = _read(folder / "facts.json") or {}
    if commit:
        facts["commit"] = commit
    runs = {path.parent.name: _read(path) for path in sorted(folder.glob("*/status.json"))}
    benches = [_read(path) for path in sorted(folder.glob("bench_*.json"))]
    rows = [row for bench in benches if bench for row in bench["rows"]]
    record = {"machine": facts, "outcomes": outcomes, "runs": runs, "bench": rows}
    text = json.dumps(record, indent=2)
    (out / "record.json").write_text(_without_paths(text, folder) + "\n")
    (out / "record.md").write_text(_without_paths("\n".join(_page(record)), folder) + "\n")
    with tarfile.open(out / "logs.tar.gz", "w:gz") as archive:
        for path in sorted((folder / "logs").glob("*.log")):
            archive.add(path, f"logs/{path.name}")
        for run in runs:
            for name in _OF_A_RUN:
                if (folder / run / name).exists():
                    archive.add(folder / run / name, f"{run}/{name}")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None  # a stage that was killed while it wrote


def _without_paths(text: str, folder: Path) -> str:
    """Where the checkout lies is nobody's business."""
    for path, name in ((folder, "FOLDER"), (Path(__file__).parents[2], "CHECKOUT")):
        text = text.replace(str(path), name)
    return re.sub(r"(?<![\w./])/(?:home|root|opt|work|usr|tmp)/[\w./+-]*/(?=[\w.+-])", "…/", text)


def _page(record: Mapping[str, Any]) -> list[str]:
    facts = record["machine"]
    lines = ["# A day with an accelerator", ""]
    if "devices" in facts:
        devices = ", ".join(facts["devices"])
        versions = ", ".join(f"{name} {of}" for name, of in facts["versions"].items() if of)
        lines += [
            f"{devices}; {facts['processor']}, {facts['cores']} cores, {facts['memory_gib']} GiB; "
            f"Python {facts['python']}; {versions}; {facts['time']}; "
            f"commit {facts['commit'] or 'unknown'}.",
            "",
        ]
    lines += _table(
        ("stage", "piece", "outcome", "s", "what it reached"),
        [
            (each["stage"], each["piece"], each["status"], each["seconds"], each["detail"])
            for each in record["outcomes"]
        ],
    )
    if record["bench"]:
        header = ("benchmark", "unit", "here", "limit", "ratio", "target")
        lines += ["", "## Benchmarks", "", *_table(header, map(_of_bench, record["bench"]))]
    return lines


def _of_bench(row: Mapping[str, Any]) -> tuple[object, ...]:
    figures = [f"{row[name]['median']:.4g}" for name in ("ours", "limit", "ratio")]
    return (row["name"], row["unit"], *figures, row["target"])


def _table(header: Sequence[str], rows: Any) -> list[str]:
    lines = [header, ("---",) * len(header), *rows]
    return [
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in lines
    ]
