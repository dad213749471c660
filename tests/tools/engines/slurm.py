"""Runs the job file of Slurm, on this machine: `python -m tests.tools.engines.slurm [HOSTS]`.

The job file of configs/jobs, adapted to CartPole, is submitted to a Slurm of this machine alone
(Debian: `apt-get install slurm-wlm munge`), put back in the queue while it learns, and has to
resume and to reach its target. Slurm holds a job that was put back for two minutes. HOSTS of a
learner, by default 1, are nodes of their own, each with a name of this machine. Ends with 1 if
anything is not as it should be, with 2 if Slurm is not installed.
"""

import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from learner.checkpoints.run_records import played_rounds
from learner.extras.bench.measuring import machine_in_words
from seedrl import run_files
from tests.tools.engines.one_machine import ROOT, Cluster, missing

# The file of configs/jobs for each number of hosts, and what is adapted in it.
FILES = {1: "slurm.sbatch", 2: "slurm-hosts.sbatch"}
_ADAPTED = {
    "config=atari_r2d2": "config=cartpole_r2d2",
    r"env_servers=\d+": "env_servers={of_host}",
    r"environments_of_first=\d+": "environments_of_first=116",
    r"environments=\d+": "environments={environments}",
    "#SBATCH --gpus-per-node=.*\n": "",
    "(#SBATCH --ntasks-per-node=).*": r"\g<1>1",
    "--cpus-per-task=8": "--cpus-per-task=2",
    "--cpus-per-task=4": "--cpus-per-task=1",
    "(--time)=.*": r"\1=1:00:00",
    "--mem=48G": "--mem=4G\n#SBATCH --partition=learners",
    "--mem=16G": "--mem=1G\n#SBATCH --partition=envs",
}
TARGET = 475.0
_LOG = "job.log"
_RESUMES = re.compile(r"resuming from update ([\d,]+) and ([\d,]+) environment steps")
_ENDED = {"CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT"}
# Learned by then, and far from the target.
_UPDATES_BEFORE = 300
# Each is far more than a machine that does other work was seen to take.
_LEARNS_SECONDS = 600.0
_REQUEUED_SECONDS = 600.0
_ENDS_SECONDS = 1200.0


def adapted(hosts: int) -> str:
    """The job file for CartPole on a Slurm of this machine, with two nodes of one env server."""
    text = (ROOT / "configs" / "jobs" / FILES[hosts]).read_text()
    values = {"of_host": 2 // hosts, "environments": 66 if hosts == 1 else 16}
    for pattern, words in _ADAPTED.items():
        text = re.sub(f"(?m)(?<![a-z_]){pattern}", words.format(**values), text)
    return text


def main(hosts: int = 1) -> int:
    """Returns the exit code."""
    if names := missing():
        print(f"expected {', '.join(names)}; on Debian: apt-get install slurm-wlm munge")
        return 2
    with tempfile.TemporaryDirectory(prefix="seedrl-slurm-") as name:
        folder = Path(name)
        (folder / "slurm.sbatch").write_text(adapted(hosts))
        with Cluster(folder, learner_nodes=hosts, env_server_nodes=2) as cluster:
            print(
                time.strftime("%Y-%m-%d"), machine_in_words(), cluster.call("sinfo", "-V"), sep=", "
            )
            print(f"configs/jobs/{FILES[hosts]} for CartPole, with two env servers")
            try:
                found = follow(cluster, folder)
            except (RuntimeError, TimeoutError) as error:
                print(error, *(log_of(folder)[-20:]), sep="\n")
                found = False
    print("all is as it should be" if found else "NOT as it should be")
    return 0 if found else 1


def follow(cluster: Cluster, folder: Path) -> bool:
    """Whether the job resumes where it was saved, and reaches its target."""
    run = folder / "runs" / "seedrl"
    job = cluster.call("sbatch", "--parsable", f"--output={folder / _LOG}", "slurm.sbatch")
    say(f"sbatch slurm.sbatch: job {job}")

    def learns() -> bool:
        return status(run).get("updates", 0) > _UPDATES_BEFORE

    cluster.wait(_LEARNS_SECONDS, "learning", learns)
    say(f"it learns: {progress(run)}")
    cluster.call("scontrol", "requeue", job)
    say(f"scontrol requeue {job}")
    cluster.wait(_REQUEUED_SECONDS, "the queue", lambda: states(cluster, job) == {"PENDING"})
    saved = progress(run)
    say(f"it has saved {saved}, and is in the queue again")
    cluster.wait(_REQUEUED_SECONDS, "resuming", lambda: any(map(_RESUMES.search, log_of(folder))))
    # All hosts say so, and the same.
    ((updates, steps),) = set(_RESUMES.findall("\n".join(log_of(folder))))
    resumed = f"{updates.replace(',', '')} updates, {steps.replace(',', '')} steps"
    say(f"it resumes from {resumed}")
    cluster.wait(_ENDS_SECONDS, "the end", lambda: states(cluster, job) <= _ENDED)
    last = played_rounds(run / run_files.METRICS)[-1].score
    say(
        f"{', '.join(states(cluster, job))}: {last.mean_return:.1f} over {last.episodes} episodes, "
        f"at {last.env_steps} steps"
    )
    print("\nThe job's output, without its lines of progress:\n")
    print(*(line for line in log_of(folder) if " steps (" not in line), sep="\n", end="\n\n")
    return (
        resumed == saved
        and states(cluster, job) == {"COMPLETED"}
        and last.is_confirmation
        and last.mean_return >= TARGET
    )


def status(run: Path) -> dict[str, Any]:
    """The run's status; empty while there is none."""
    try:
        found: dict[str, Any] = json.loads((run / run_files.STATUS).read_text())
    except (OSError, ValueError):
        return {}
    return found


def say(text: str) -> None:
    """One line, with the time."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


def log_of(folder: Path) -> list[str]:
    """The lines that the job has printed."""
    path = folder / _LOG  # not there before the job has begun
    text = path.read_text() if path.exists() else ""
    return text.replace(str(folder), "FOLDER").splitlines()


def progress(run: Path) -> str:
    """How far the run is, in words."""
    found = status(run)
    return f"{found['updates']} updates, {found['env_steps']} steps"


def states(cluster: Cluster, job: str) -> set[str]:
    """The states of the job's components."""
    return set(re.findall(r"JobState=(\w+)", cluster.call("scontrol", "show", "job", job)))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
