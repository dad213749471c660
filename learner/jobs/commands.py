"""What every engine runs: the two commands of a run, and the images that hold them."""

from collections.abc import Sequence
from importlib import metadata

from learner.jobs.job import Job

PORT = 8686
HEALTH_PORT = 8687
# Where the hosts of a learner meet, on the first of them.
COORDINATOR_PORT = 8690


def learner(
    job: Job,
    *,
    workdir: str,
    bind: str,
    secrets: str = "",
    health_port: int = 0,
    place: Sequence[str] = (),
) -> list[str]:
    """The command of the learner, or of one host of it.

    Args:
      secrets: the folder of its token and certificates, which it needs where other machines reach
        it.
      health_port: where it answers probes; 0 for none.
      place: see `place`.
    """
    of_its_own = {
        "token-file": "token",
        "authority": "ca.pem",
        "certificate": "learner.pem",
        "private-key": "learner.key",
    }
    return [
        "seedrl-learner",
        job.config,
        f"--workdir={workdir}",
        f"--env-servers={job.per_host}",
        f"--serving.bind={bind}",
        *(f"--serving.{flag}={secrets}/{file}" for flag, file in of_its_own.items() if secrets),
        *([f"--logging.health-bind=0.0.0.0:{health_port}"] if health_port else []),
        *place,
    ]


def place(job: Job, *, first: str, index: object) -> list[str]:
    """Which host of the learner a process is, if there are several.

    Args:
      first: the name by which the others reach the first one.
      index: of this one.
    """
    if job.hosts == 1:
        return []
    return [
        f"--hosts={job.hosts}",
        f"--coordinator={first}:{COORDINATOR_PORT}",
        f"--host-index={index}",
    ]


def env_server(
    job: Job, *, learner: str, secrets: str = "", environments: object = None
) -> list[str]:
    """An env server's command.

    Args:
      learner: the address that it dials.
      secrets: as above.
      environments: by default those of the first host's env servers.
    """
    of_its_own = {
        "token-file": "token",
        "authority": "ca.pem",
        "certificate": "env_server.pem",
        "private-key": "env_server.key",
    }
    return [
        "seedrl-env-server",
        f"--learner={learner}",
        f"--num-envs={environments or job.environments}",
        f"--groups={job.needs.groups}",
        *job.needs.options,
        *(f"--allow-env={name}" for name in job.needs.factories),
        *(f"--{flag}={secrets}/{file}" for flag, file in of_its_own.items() if secrets),
    ]


def certified(job: Job, host: str) -> str:
    """For `seedrl certificates`, whom the learner's are for: `host` with {} for each index."""
    if job.hosts == 1:
        return f"--host {host.format(0)}"
    return f"--host={host.format(f'{{0..{job.hosts - 1}}}')}"


def on_what(job: Job, one: str) -> str:
    """The learner and its hardware, within a sentence; a single one is called `one`."""
    if job.hosts == 1:
        return f"{one} {job.accelerator.in_words}"
    return f"a learner of {job.hosts} hosts, each {job.accelerator.in_words},"


def learner_image(job: Job) -> str:
    """The image of Dockerfile.learner."""
    extra = job.accelerator.extra
    return _image(job, "seedrl-learner", "" if extra == "learner" else extra)


def env_server_image(job: Job) -> str:
    """The image of Dockerfile.envs."""
    return _image(job, "seedrl-envs", job.needs.extra)


def builds(job: Job) -> str:
    """The commands that make both images, in a checkout, one a line."""
    sides = (
        ("Dockerfile.learner", learner_image(job), job.accelerator.extra),
        ("Dockerfile.envs", env_server_image(job), job.needs.extra),
    )
    return "\n".join(
        " ".join(
            [
                f"  docker build -f {file} -t {image}",
                *([f"--build-arg EXTRA={extra}"] if extra not in ("", "learner") else []),
                ".",
            ]
        )
        for file, image, extra in sides
    )


def slots(job: Job) -> str:
    """How env servers fill the slots, in words."""
    if job.hosts > 1:
        return (
            f"{job.config}: {job.per_host} x {job.environments} environments fill the "
            f"{job.slots_of(0)} slots of the first host, which alone evaluates,\n"
            f"{job.per_host} x {job.environments_of_others} the {job.slots_of(1)} of another one."
        )
    return (
        f"{job.env_servers} x {job.environments} environments fill the {job.needs.slots} slots of "
        f"{job.config}."
    )


def _image(job: Job, name: str, extra: str) -> str:
    tag = "-".join(filter(None, (metadata.version("seedrl"), extra)))
    return "/".join(filter(None, (job.registry.rstrip("/"), f"{name}:{tag}")))
