"""Docker compose: everything on one machine, without a network."""

from learner.jobs import commands
from learner.jobs.job import Job
from learner.jobs.template import fill, yaml_list
from seedrl.errors import ConfigError

_ALONE = "A learner {on} and its env servers on one machine, over a unix socket in a shared volume."
_SEVERAL = """\
A learner of {job.hosts} hosts, each {on}, and its env servers on one machine, over unix sockets in
a shared volume: what several machines would do, to try it, or a process for each of its GPUs."""
_NO_NETWORK = "No container has a network. Run it again to resume from the last checkpoint."
_OWN_NETWORK = """\
Only learners have a network, which leads nowhere else. One that is lost ends the others, and all
are started again. Run the file again to resume from the last checkpoint."""
_NETWORKS = """\
# Learners meet there, and compute updates together.
networks:
  learners:
    internal: true

secrets:
  token:
    file: ./token

"""
_TOKEN = "/run/secrets/token"
_TOKEN_NOTE = """\

A token, by which learners and env servers know each other, for the images' user alone:

  openssl rand -hex 32 | sudo install -m 0400 -o 10001 /dev/stdin token
"""


def render(job: Job) -> str:
    """The file for `docker compose`. Raises ConfigError for a TPU."""
    if job.accelerator.is_tpu:
        raise ConfigError(
            f"--accelerator: expected cpu or a GPU for compose, got {job.accelerator.name}; jobset "
            "and sky place learners on TPUs"
        )
    is_alone = job.hosts == 1
    services = [_learner(job, host) for host in range(job.hosts)]
    services += [_env_servers(job, host) for host in range(job.hosts)]
    return fill(
        "compose.yaml",
        {
            "command": job.command,
            "name": job.name,
            "title": (_ALONE if is_alone else _SEVERAL).format(
                on=job.accelerator.in_words, job=job
            ),
            "network_note": _NO_NETWORK if is_alone else _OWN_NETWORK,
            "networks": "" if is_alone else _NETWORKS,
            "token_note": "" if is_alone else _TOKEN_NOTE,
            "builds": commands.builds(job),
            "slots": commands.slots(job),
            "services": "\n".join(services).rstrip(),
        },
    )


def _of(job: Job, name: str, host: int) -> str:
    """The name of what belongs to a host, where there are several."""
    return name if job.hosts == 1 else f"{name}-{host}"


def _socket(job: Job, host: int) -> str:
    return f"unix:/sockets/{_of(job, 'learner', host)}.sock"


def _learner(job: Job, host: int) -> str:
    command, *args = commands.learner(
        job,
        workdir="/checkpoints/run",
        bind=_socket(job, host),
        place=commands.place(job, first=_of(job, "learner", 0), index=host),
    )
    if job.hosts > 1:
        args.append(f"--serving.token-file={_TOKEN}")
    return fill(
        "compose_learner.yaml",
        {
            "service": _of(job, "learner", host),
            "learner_image": commands.learner_image(job),
            "learner_command": command,
            "learner_args": yaml_list(args),
            "network": "network_mode: none" if job.hosts == 1 else "networks: [learners]",
            "secrets": _secrets(job),
            "devices": _devices(job, host),
        },
    )


def _env_servers(job: Job, host: int) -> str:
    command, *args = commands.env_server(
        job,
        learner=_socket(job, host),
        environments=job.environments if host == 0 else job.environments_of_others,
    )
    if job.hosts > 1:
        args.append(f"--token-file={_TOKEN}")
    return fill(
        "compose_envs.yaml",
        {
            "service": _of(job, "envs", host),
            "env_server_image": commands.env_server_image(job),
            "env_server_command": command,
            "env_server_args": yaml_list(args),
            "secrets": _secrets(job),
            "env_servers": str(job.per_host),
        },
    )


def _secrets(job: Job) -> str:
    return "" if job.hosts == 1 else "secrets: [token]"


def _devices(job: Job, host: int) -> str:
    """Any GPUs for one learner; for several each its own."""
    count = job.accelerator.count
    if not job.accelerator.is_gpu:
        return ""
    own = ", ".join(f'"{number}"' for number in range(host * count, (host + 1) * count))
    which = f"count: {count}" if job.hosts == 1 else f"device_ids: [{own}]"
    return f"""\
deploy:
  resources:
    reservations:
      devices:
        - driver: nvidia
          {which}
          capabilities: [gpu]"""
