"""A run that is to be placed: what it is, and what its processes need."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from learner.jobs.job import Job
from learner.on_ray.nodes import Demand


class Work(NamedTuple):
    """What is the same for all processes of a run.

    Attributes:
      job: what they are; its CONFIG is replaced where it is read.
      workdir: the run's folder, as nodes see it.
      mark: text that no other launch has.
      import_folders: first on Python's path, if they are there.
    """

    job: Job
    workdir: Path
    mark: str
    import_folders: tuple[str, ...]


class Secrets(NamedTuple):
    """Files of token and certificates, by name; for their owners alone."""

    learner: Mapping[str, str]
    env_server: Mapping[str, str]


class Order(NamedTuple):
    """A run that is to be placed.

    Attributes:
      work: what its processes are.
      config: the learner's configuration, as JSON.
      options: of the learner's command line.
      learner, env_server: what each asks for.
      grace_seconds: how long the learner may take to end once it is asked to.
      restarts: of an env server, at most, within a minute.
      version: of seedrl, on all nodes.
      start_command, resume_command: what the user typed, and what resumes the run.
    """

    work: Work
    config: str
    options: tuple[str, ...]
    learner: Demand
    env_server: Demand
    grace_seconds: float
    restarts: int
    version: str
    start_command: str
    resume_command: str

    def unshared(self, where: str) -> str:
        """What is wrong with the run's folder on a node that does not see it as others do."""
        folder = self.work.workdir
        return f"{folder} is not shared: {where} does not see there what the learner has written"

    def resumes(self, what: str) -> str:
        """What has ended the run, and the command that resumes it."""
        return f"{what}; this resumes from its newest checkpoint: {self.resume_command}"
