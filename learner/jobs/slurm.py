"""Slurm: a heterogeneous job, its first component the learner and its second the env servers."""

from learner.jobs import commands
from learner.jobs.job import Job
from learner.jobs.template import fill, shell_words
from seedrl.errors import ConfigError

_HOSTS_NOTE = """\
Learners meet on the first node, and jax's collectives choose ports of their own: nobody else may
reach these. One that is lost ends the others, and the job: submit it again."""


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
            **(_of_one_host(job) if job.hosts == 1 else _of_several_hosts(job)),
            "hosts": str(job.hosts),
            "command": job.command,
            "name": job.name,
            "slots": commands.slots(job),
            "hours": str(job.hours),
            "learner_partition": _directive("partition", job.queue),
            "learner_cpus": str(job.learner_cpus),
            "learner_memory": str(job.learner_memory_gib),
            # By number alone: what types are called is each cluster's own business.
            "gpus": _directive("gpus-per-node", str(accelerator.count or "")),
            "env_server_partition": _directive("partition", job.env_server_queue),
            "nodes": str(job.nodes),
            "per_node": str(job.per_node),
            "env_server_cpus": str(job.env_server_cpus),
            "env_server_memory": str(job.env_server_memory_gib * job.per_node),
        },
    )


def _of_one_host(job: Job) -> dict[str, str]:
    """What of the script is so where one process learns."""
    bind = f"0.0.0.0:{commands.PORT}"
    learner = commands.learner(job, workdir="$workdir", bind=bind, secrets="$secrets")
    env_server = commands.env_server(job, learner="$learner", secrets="$secrets")
    return {
        "title": "A heterogeneous Slurm job: component 0 is the learner "
        f"{job.accelerator.in_words}, component 1 its env servers.",
        "verified": "run by Slurm 22.05 on one machine, put back in the queue and resumed; never "
        "on a cluster.",
        "hosts_note": "",
        "learner_hosts": "read -r learner_host < <(scontrol show hostnames "
        '"$SLURM_JOB_NODELIST_HET_GROUP_0")',
        "certified": '--host "$learner_host"',
        "own_learner": "learner=$0 secrets=$1",
        "env_server": shell_words(env_server),
        "learner_addresses": f'"$learner_host:{commands.PORT}" "$secrets"',
        "learner_step": f"srun --het-group=0 --cpus-per-task={job.learner_cpus} "
        + shell_words(learner),
    }


def _of_several_hosts(job: Job) -> dict[str, str]:
    """The same where one does on each of several nodes; the number of its task is the host's."""
    learner = commands.learner(
        job,
        workdir="$workdir",
        bind="0.0.0.0:$port",
        secrets="$secrets",
        place=commands.place(job, first="$first", index="$SLURM_PROCID"),
    )
    env_server = commands.env_server(
        job, learner="$learner", secrets="$secrets", environments="$environments"
    )
    return {
        "title": f"A heterogeneous Slurm job: component 0 is a learner of {job.hosts} hosts, each\n"
        f"{job.accelerator.in_words}, component 1 its env servers.",
        "verified": "run by Slurm 22.05 on one machine, with two hosts that are nodes of their own "
        "there,\nput back in the queue and resumed; never on a cluster, never with a GPU.",
        "hosts_note": _HOSTS_NOTE,
        "learner_hosts": "mapfile -t learner_hosts < <(scontrol show hostnames "
        '"$SLURM_JOB_NODELIST_HET_GROUP_0")',
        "certified": '"${learner_hosts[@]/#/--host=}"',
        "own_learner": f"""\
secrets=$0 learner_hosts=("$@") host=$((SLURM_PROCID % {job.hosts}))
learner=${{learner_hosts[host]}}:$(({commands.PORT} + host))
environments=$((host == 0 ? {job.environments} : {job.environments_of_others}))""",
        "env_server": shell_words(env_server),
        "learner_addresses": '"$secrets" "${learner_hosts[@]}"',
        "learner_step": f"""\
srun --het-group=0 --cpus-per-task={job.learner_cpus} --kill-on-bad-exit=0 bash -c '
  workdir=$0 secrets=$1 first=$2
  port=$(({commands.PORT} + SLURM_PROCID)) # so that hosts may be processes of one machine
  exec """
        + shell_words(learner).replace("'", "'\\''").replace("\n", "\n  ")
        + """' "$workdir" "$secrets" "${learner_hosts[0]}\"""",
    }


def _directive(option: str, value: str) -> str:
    return f"#SBATCH --{option}={value}" if value else ""
