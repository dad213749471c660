"""Slurm: a heterogeneous job, its first component the learner and its second the env servers."""

from learner.jobs import commands
from learner.jobs.job import Job
from learner.jobs.template import fill, shell_words
from seedrl.errors import ConfigError


def render(job: Job) -> str:
    """The script for `sbatch`. Raises ConfigError for a TPU, which Slurm does not hand out."""
    accelerator = job.accelerator
    if accelerator.is_tpu:
        raise ConfigError(
            f"--accelerator: expected cpu or a GPU for Slurm, got {accelerator.name}; jobset and "
            "sky place learners on TPUs"
        )
    return fill(
        "slurm.sbatch",
        {
            "command": job.command,
            "name": job.name,
            "slots": commands.slots(job),
            "hours": str(job.hours),
            "port": str(commands.PORT),
            "on_what": accelerator.in_words,
            "learner_partition": _directive("partition", job.queue),
            "learner_cpus": str(job.learner_cpus),
            "learner_memory": str(job.learner_memory_gib),
            # By number alone: what types are called is each cluster's own business.
            "gpus": _directive("gpus-per-node", str(accelerator.count or "")),
            "learner": shell_words(
                commands.learner(
                    job,
                    workdir="$workdir",
                    bind=f"0.0.0.0:{commands.PORT}",
                    secrets="$secrets",
                )
            ),
            "env_server_partition": _directive("partition", job.env_server_queue),
            "nodes": str(job.nodes),
            "per_node": str(job.per_node),
            "env_server_cpus": str(job.env_server_cpus),
            "env_server_memory": str(job.env_server_memory_gib * job.per_node),
            "env_server": shell_words(
                commands.env_server(job, learner="$learner", secrets="$secrets")
            ),
        },
    )


def _directive(option: str, value: str) -> str:
    return f"#SBATCH --{option}={value}" if value else ""
