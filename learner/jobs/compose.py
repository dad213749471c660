"""Docker compose: everything on one machine, without a network."""

from learner.jobs import commands
from learner.jobs.job import Job
from learner.jobs.template import fill, yaml_list
from seedrl.errors import ConfigError

_SOCKET = "unix:/sockets/learner.sock"


def render(job: Job) -> str:
    """The file for `docker compose`. Raises ConfigError for a TPU."""
    if job.accelerator.is_tpu:
        raise ConfigError(
            f"--accelerator: expected cpu or a GPU for compose, got {job.accelerator.name}; jobset "
            "and sky place learners on TPUs"
        )
    learner, *learner_args = commands.learner(job, workdir="/checkpoints/run", bind=_SOCKET)
    env_server, *env_server_args = commands.env_server(job, learner=_SOCKET)
    return fill(
        "compose.yaml",
        {
            "command": job.command,
            "name": job.name,
            "on_what": job.accelerator.in_words,
            "builds": commands.builds(job),
            "slots": commands.slots(job),
            "learner_image": commands.learner_image(job),
            "learner_command": learner,
            "learner_args": yaml_list(learner_args),
            "devices": _devices(job),
            "env_server_image": commands.env_server_image(job),
            "env_server_command": env_server,
            "env_server_args": yaml_list(env_server_args),
            "env_servers": str(job.env_servers),
        },
    )


def _devices(job: Job) -> str:
    if not job.accelerator.is_gpu:
        return ""
    return f"""\
deploy:
  resources:
    reservations:
      devices:
        - driver: nvidia
          count: {job.accelerator.count}
          capabilities: [gpu]"""
