"""The job files that tests look at: those in configs/jobs, and others with all options."""

import shlex
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from learner.cli.launch import rendered
from tests.architecture.documents import JOBS, job_file

ROOT = Path(__file__).parents[2]
# Beside the files that stand there: each option of `seedrl launch` at least once.
OTHERS = (
    "atari_r2d2 --render jobset --accelerator h100:8 --spot all --queue lab --name probe "
    "--registry registry.example/lab --env-servers 17 --learner-cpus 64 --learner-memory-gib 400 "
    "--env-server-cpus 2 --env-server-memory-gib 3",
    "catch_r2d2 --render jobset --spot env-servers --hosts 1",
    "atari_r2d2 --render slurm --accelerator gpu:2 --queue gpu --env-server-queue cpu --hours 100 "
    "--env-servers 12 --env-servers-per-node 6",
    "cartpole_r2d2 --render slurm",
    "atari_r2d2 --render sky --accelerator tpu-v5e:8 --spot env-servers --env-servers 34",
    "cartpole_r2d2 --render sky --name probe",
    "pong_r2d2 --render compose --accelerator gpu:2 --env-servers 3 --registry registry.example",
    "pong_r2d2 --render jobset --accelerator h100:8 --hosts 3 --env-servers 6 --spot all "
    "--name probe",
    "pong_r2d2 --render slurm --hosts 3 --env-servers 6 --env-servers-per-node 1",
    "pong_r2d2 --render sky --hosts 3 --env-servers 6 --env-servers-per-node 2 --name probe",
    "pong_r2d2 --render compose --accelerator gpu:2 --hosts 3 --env-servers 6",
)
FILES = (*JOBS, *OTHERS)


def of_engine(engine: str) -> list[str]:
    """The files of an engine, by their names or what they are written from."""
    return [name for name in FILES if f"--render {engine}" in f"{JOBS.get(name)} {name}"]


JOBSETS = of_engine("jobset")
Document = dict[str, Any]


@cache
def text_of(name: str) -> str:
    return job_file(name) if name in JOBS else rendered(shlex.split(name))


def documents(name: str) -> list[Document]:
    return list(yaml.safe_load_all(text_of(name)))


def kind(documents: list[Document], wanted: str) -> Document:
    (found,) = [document for document in documents if document["kind"] == wanted]
    return found


def replicated_jobs(documents: list[Document]) -> dict[str, Document]:
    jobs = kind(documents, "JobSet")["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"] for job in jobs}
