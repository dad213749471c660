"""SkyPilot: a job group, whose one task is the learner and whose other task the env servers."""

from learner.jobs import commands
from learner.jobs.accelerators import ANY_GPU
from learner.jobs.job import Job
from learner.jobs.template import fill, shell_words
from seedrl.errors import ConfigError

_VENV = "~/seedrl"
_SECRETS = "secrets"


def render(job: Job) -> str:
    """The file for `sky jobs launch`. Raises ConfigError for a GPU of no particular kind."""
    accelerator = job.accelerator
    if accelerator.name == ANY_GPU:
        raise ConfigError(
            "--accelerator: SkyPilot looks for a machine with GPUs of one kind; expected its name, "
            f"got {ANY_GPU}"
        )
    certificates = f"~/{job.name}-certificates"
    learner = commands.learner(
        job,
        workdir="/checkpoints/run",
        bind=f"0.0.0.0:{commands.PORT}",
        secrets=f"$HOME/{_SECRETS}",
    )
    address = f"learner-0.${{SKYPILOT_JOBGROUP_NAME}}:{commands.PORT}"
    env_server = commands.env_server(job, learner=address, secrets=f"$HOME/{_SECRETS}")
    return fill(
        "sky.yaml",
        {
            "command": job.command,
            "name": job.name,
            "on_what": accelerator.in_words,
            "certificates": certificates,
            "host": f"learner-0.{job.name}",
            "slots": commands.slots(job),
            "accelerators": f"accelerators: {accelerator.sky}:{accelerator.count}"
            if accelerator.count
            else "",
            "learner_cpus": str(job.learner_cpus),
            "learner_memory": str(job.learner_memory_gib),
            "learner_spot": _yes(job.spot == "all"),
            "learner_files": _files(certificates, "learner"),
            "learner_setup": _setup(accelerator.extra),
            "learner": shell_words(learner),
            "nodes": str(job.nodes),
            "per_node": str(job.per_node),
            "env_server_cpus": str(job.env_server_cpus * job.per_node),
            "env_server_memory": str(job.env_server_memory_gib * job.per_node),
            "env_server_spot": _yes(job.spot != "none"),
            "env_server_files": _files(certificates, "env_server"),
            "env_server_setup": _setup(job.needs.extra),
            "env_server": shell_words(env_server),
        },
    )


def _yes(is_so: bool) -> str:
    return "true" if is_so else "false"


def _files(certificates: str, side: str) -> str:
    """What one side needs, each file by itself: the authority's key stays where it was made."""
    names = ("token", "ca.pem", f"{side}.pem", f"{side}.key")
    return "\n".join(f"~/{_SECRETS}/{name}: {certificates}/{name}" for name in names)


def _setup(extra: str) -> str:
    """The lines that install the checkout, with the locked versions of what it depends on."""
    what = f"'.[{extra}]'" if extra else "."
    return f"""\
sed -n 's/^\\([A-Za-z0-9].*\\) \\\\$/\\1/p' requirements.lock > /tmp/constraints.txt
~/.local/bin/uv venv --python 3.12 {_VENV}
~/.local/bin/uv pip install --python {_VENV} --constraint /tmp/constraints.txt {what}"""
