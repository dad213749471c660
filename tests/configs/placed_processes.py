"""The files of configs/jobs, and the processes that each starts, with the words that these get.

What engines replace is replaced as they do; scripts are run by a shell, with stand-ins for the
engine's own commands and for the programs, which only write down how they were called.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

LEARNER, ENV_SERVER = "seedrl-learner", "seedrl-env-server"
FOLDER = Path(__file__).parents[2] / "configs" / "jobs"
FILES = sorted(path.name for path in FOLDER.iterdir())
Document = dict[str, Any]
_SECONDS = 120.0
_BIND = r"--serving\.bind=(?:0\.0\.0\.0:)?(\S+)"
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
    """Words of the learner of each host, by the address that env servers dial, and of these."""

    learners: dict[str, list[str]]
    env_servers: list[list[str]]


def text_of(name: str) -> str:
    return (FOLDER / name).read_text()


def documents(name: str) -> list[Document]:
    return list(yaml.safe_load_all(text_of(name)))


def kind(documents: list[Document], wanted: str) -> Document:
    (found,) = [document for document in documents if document["kind"] == wanted]
    return found


@cache
def placed(name: str) -> Placed:
    """The processes of a file."""
    engine = next(each for each in _ENGINES if name.startswith(each))
    started = list(_ENGINES[engine](name))
    learners = [words for program, *words in started if program == LEARNER]
    env_servers = [words for program, *words in started if program == ENV_SERVER]
    return Placed(_by_address(engine, learners), env_servers)


def _jobset(name: str) -> Iterator[list[str]]:
    files = documents(name)
    spec = kind(files, "JobSet")["spec"]
    own_name = kind(files, "JobSet")["metadata"]["name"]
    for job in spec["replicatedJobs"]:
        of_job = job["template"]["spec"]
        container = of_job["template"]["spec"]["containers"][0]
        assert of_job["parallelism"] == of_job["completions"]
        for job_index in range(job["replicas"]):
            for pod_index in range(of_job["completions"]):
                fields = {
                    "labels['jobset.sigs.k8s.io/jobset-name']": own_name,
                    "labels['jobset.sigs.k8s.io/job-index']": str(job_index),
                    "annotations['batch.kubernetes.io/job-completion-index']": str(pod_index),
                    "annotations['jobset.sigs.k8s.io/coordinator']": "-".join(
                        [own_name, *(str(part) for part in spec["coordinator"].values())]
                    )
                    + f".{spec['network']['subdomain']}",
                }
                yield _in_pod(container, fields)


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
    return words if words[0] != "sh" else _run(words, variables)[0]


def _compose(name: str) -> Iterator[list[str]]:
    (compose,) = documents(name)
    for service in compose["services"].values():
        for _ in range(service.get("deploy", {}).get("replicas", 1)):
            yield service["entrypoint"] + service["command"]


def _sky(name: str) -> Iterator[list[str]]:
    group, *tasks = documents(name)
    for task in tasks:
        hosts = task.get("num_nodes", 1)
        for rank in range(hosts):
            variables = {
                "SKYPILOT_NODE_RANK": str(rank),
                "SKYPILOT_NODE_IPS": "\n".join(f"10.0.0.{each + 1}" for each in range(hosts)),
                "SKYPILOT_JOBGROUP_NAME": group["name"],
            }
            yield from _run(["bash", "-c", task["run"]], variables)


def _slurm(name: str) -> Iterator[list[str]]:
    script = text_of(name)
    first, _, second = script.partition("#SBATCH hetjob")
    hosts = int(re.search(r"--ntasks=(\d+)", first)[1])
    nodes, tasks = re.search(r"--nodes=(\d+)\n#SBATCH --ntasks-per-node=(\d+)", second).groups()
    variables = {
        "SLURM_JOB_NODELIST_HET_GROUP_0": " ".join(f"node{number}" for number in range(hosts)),
        "SLURM_SUBMIT_DIR": "/submitted",
        "TASKS_0": str(hosts),
        "TASKS_1": str(int(nodes) * int(tasks)),
    }
    yield from _run(["bash", "-c", script], variables)


_ENGINES = {"jobset": _jobset, "compose": _compose, "sky": _sky, "slurm": _slurm}
_NAMES = {
    "jobset": "seedrl-learner-0-{}.seedrl:{}",
    "sky": "learner-{}.seedrl:{}",
    "slurm": "node{}:{}",
    "compose": "{1}",
}


def _by_address(engine: str, learners: list[list[str]]) -> dict[str, list[str]]:
    """By the names that engines give to hosts, with the ports that learners serve on."""
    return {
        _NAMES[engine].format(index, re.search(_BIND, " ".join(words))[1]): words
        for index, words in enumerate(learners)
    }


def _run(script: list[str], variables: Mapping[str, str]) -> list[list[str]]:
    """Runs a script; the programs that it has started, with their words, by their tasks."""
    with tempfile.TemporaryDirectory() as name:
        folder, records = Path(name), Path(name, "records")
        records.mkdir()
        for program, text in _STAND_INS.items():
            (folder / program).write_text(f"#!/usr/bin/env bash\n{text}")
            (folder / program).chmod(0o700)
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
