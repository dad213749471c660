"""What every engine runs: the two commands of a run, and the images that hold them."""

from importlib import metadata

from learner.jobs.job import Job

PORT = 8686
HEALTH_PORT = 8687


def learner(
    job: Job, *, workdir: str, bind: str, secrets: str = "", health_port: int = 0
) -> list[str]:
    """The learner's command.

    `secrets` is the folder of its token and certificates, which it needs where other machines reach
    it; at `health_port`, if that is not 0, it answers probes.
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
        f"--env-servers={job.env_servers}",
        f"--serving.bind={bind}",
        *(f"--serving.{flag}={secrets}/{file}" for flag, file in of_its_own.items() if secrets),
        *([f"--logging.health-bind=0.0.0.0:{health_port}"] if health_port else []),
    ]


def env_server(job: Job, *, learner: str, secrets: str = "") -> list[str]:
    """An env server's command; `learner` is the address that it dials. `secrets` as above."""
    of_its_own = {
        "token-file": "token",
        "authority": "ca.pem",
        "certificate": "env_server.pem",
        "private-key": "env_server.key",
    }
    return [
        "seedrl-env-server",
        f"--learner={learner}",
        f"--num-envs={job.environments}",
        f"--groups={job.needs.groups}",
        *(f"--allow-env={name}" for name in job.needs.factories),
        *(f"--{flag}={secrets}/{file}" for flag, file in of_its_own.items() if secrets),
    ]


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
    return (
        f"{job.env_servers} x {job.environments} environments fill the {job.needs.slots} slots of "
        f"{job.config}."
    )


def _image(job: Job, name: str, extra: str) -> str:
    tag = "-".join(filter(None, (metadata.version("seedrl"), extra)))
    return "/".join(filter(None, (job.registry.rstrip("/"), f"{name}:{tag}")))
