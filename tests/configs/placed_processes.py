"""The processes that a job file starts, each with the words that it gets.

What engines replace is replaced as they do; scripts are run by a shell, with stand-ins for the
engine's own commands and for the programs, which only write down how they were called.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.configs.job_files import (
    JOBSETS,
    Document,
    documents,
    kind,
    of_engine,
    replicated_jobs,
    text_of,
)

LEARNER, ENV_SERVER = "seedrl-learner", "seedrl-env-server"
_SECONDS = 120.0
_BIND = r"--serving\.bind=0\.0\.0\.0:(\d+)"
_PROGRAM = """\
printf '%s\\0' "${0##*/}" "$@" > "$RECORDS/$(printf '%05d' "${SLURM_PROCID:-0}")-$BASHPID"
"""
# Env servers are stopped when the learner ends: here they are all started before it is.
_SRUN = """\
while [[ $1 == --* ]]; do
  [[ $1 != --het-group=* ]] || group=${1#*=}
  shift
done
until [[ $group == 1 || -e $RECORDS.started ]]; do sleep 0.01; done
tasks=TASKS_$group
for ((task = 0; task < ${!tasks}; task++)); do SLURM_PROCID=$task "$@" || exit; done
[[ $group == 0 ]] || touch "$RECORDS.started"
"""
_STAND_INS = {
    LEARNER: _PROGRAM,
    ENV_SERVER: _PROGRAM,
    "seedrl": "",
    "scontrol": "printf '%s\\n' $3\n",
    "srun": _SRUN,
}


class Placed(NamedTuple):
    """What a job file starts.

    Attributes:
      learners: words of each host's, by the address at which env servers reach it.
      env_servers: words of each.
    """

    learners: dict[str, list[str]]
    env_servers: list[list[str]]


@cache
def placed(name: str) -> Placed:
    """The processes of a file."""
    if name in JOBSETS:
        return _of_jobset(documents(name))
    engines = {"compose": _of_compose, "sky": _of_sky, "slurm": _of_slurm}
    (found,) = [engines[engine] for engine in engines if name in of_engine(engine)]
    return found(name)


def _of_jobset(files: list[Document]) -> Placed:
    spec = kind(files, "JobSet")["spec"]
    jobs, own_name = replicated_jobs(files), kind(files, "JobSet")["metadata"]["name"]
    subdomain = spec["network"]["subdomain"]
    started: dict[str, list[list[str]]] = {LEARNER: [], ENV_SERVER: []}
    for job in spec["replicatedJobs"]:
        container = jobs[job["name"]]["template"]["spec"]["containers"][0]
        assert jobs[job["name"]]["parallelism"] == jobs[job["name"]]["completions"]
        for job_index in range(job["replicas"]):
            for pod_index in range(jobs[job["name"]]["completions"]):
                fields = {
                    "labels['jobset.sigs.k8s.io/jobset-name']": own_name,
                    "labels['jobset.sigs.k8s.io/job-index']": str(job_index),
                    "annotations['batch.kubernetes.io/job-completion-index']": str(pod_index),
                    "annotations['jobset.sigs.k8s.io/coordinator']": "-".join(
                        [own_name, *(str(part) for part in spec["coordinator"].values())]
                    )
                    + f".{subdomain}",
                }
                program, *words = _in_pod(container, fields)
                started[program].append(words)
    (port,) = re.findall(_BIND, " ".join(started[LEARNER][0]))
    names = [f"{own_name}-learner-0-{index}.{subdomain}" for index in range(len(started[LEARNER]))]
    return Placed(
        {f"{each}:{port}": words for each, words in zip(names, started[LEARNER], strict=True)},
        started[ENV_SERVER],
    )


def _in_pod(container: Document, fields: Mapping[str, str]) -> list[str]:
    variables = {
        variable["name"]: fields[
            variable["valueFrom"]["fieldRef"]["fieldPath"].removeprefix("metadata.")
        ]
        for variable in container.get("env", ())
    }
    words = [
        # What cannot be resolved stays as it is.
        re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), word)
        for word in container["command"] + container["args"]
    ]
    if words[0] != "sh":
        return words
    (started,) = _run(words, variables)
    return started


def _of_compose(name: str) -> Placed:
    (compose,) = documents(name)
    learners, env_servers = {}, []
    for service in compose["services"].values():
        (program,), words = service["entrypoint"], service["command"]
        if program == LEARNER:
            (address,) = re.findall(r"--serving\.bind=(\S+)", " ".join(words))
            learners[address] = words
        else:
            assert program == ENV_SERVER
            env_servers += [words] * service["deploy"]["replicas"]
    return Placed(learners, env_servers)


def _of_sky(name: str) -> Placed:
    group, *tasks = documents(name)
    found: dict[str, list[list[str]]] = {}
    for task in tasks:
        hosts = task.get("num_nodes", 1)
        found[task["name"]] = []
        for rank in range(hosts):
            variables = {
                "SKYPILOT_NODE_RANK": str(rank),
                "SKYPILOT_NODE_IPS": "\n".join(f"10.0.0.{each + 1}" for each in range(hosts)),
                "SKYPILOT_JOBGROUP_NAME": group["name"],
            }
            started = _run(["bash", "-c", task["run"]], variables)
            found[task["name"]] += [words for _, *words in started]
    (port,) = re.findall(_BIND, " ".join(found["learner"][0]))
    names = [f"learner-{rank}.{group['name']}" for rank in range(len(found["learner"]))]
    return Placed(
        {f"{each}:{port}": words for each, words in zip(names, found["learner"], strict=True)},
        found["envs"],
    )


def _of_slurm(name: str) -> Placed:
    script = text_of(name)
    first, _, second = script.partition("#SBATCH hetjob")
    hosts = int(re.search(r"--ntasks=(\d+)", first)[1])
    nodes, tasks = re.search(r"--nodes=(\d+)\n#SBATCH --ntasks-per-node=(\d+)", second).groups()
    names = [f"node{number}" for number in range(hosts)]
    variables = {
        "SLURM_JOB_NODELIST_HET_GROUP_0": " ".join(names),
        "SLURM_SUBMIT_DIR": "/submitted",
        "TASKS_0": str(hosts),
        "TASKS_1": str(int(nodes) * int(tasks)),
    }
    started = _run(["bash", "-c", script], variables)
    learners = [words for program, *words in started if program == LEARNER]
    ports = [re.search(_BIND, " ".join(words))[1] for words in learners]
    return Placed(
        {f"{each}:{port}": own for each, port, own in zip(names, ports, learners, strict=True)},
        [words for program, *words in started if program == ENV_SERVER],
    )


def _run(script: list[str], variables: Mapping[str, str]) -> list[list[str]]:
    """Runs a script; the programs that it has started, with their words, by their tasks."""
    with tempfile.TemporaryDirectory() as name:
        folder, records = Path(name), Path(name, "records")
        records.mkdir()
        for program, text in _STAND_INS.items():
            path = folder / program
            path.write_text(f"#!/usr/bin/env bash\n{text}")
            path.chmod(0o700)
        activation = folder / "seedrl-home" / "seedrl" / "bin" / "activate"
        activation.parent.mkdir(parents=True)
        activation.touch()
        own = {
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder / "seedrl-home"),
            "RECORDS": str(records),
        }
        subprocess.run(script, env={**own, **variables}, check=True, timeout=_SECONDS)
        return [
            path.read_text().replace(own["HOME"], "/home/seedrl").split("\0")[:-1]
            for path in sorted(records.iterdir())
        ]
