"""SkyPilot: a job group, whose one task is the learner and whose other task the env servers."""

from learner.jobs import commands
from learner.jobs.accelerators import ANY_GPU
from learner.jobs.job import Job
from learner.jobs.template import fill, shell_words
from seedrl.errors import ConfigError

_VENV = "~/seedrl"
_SECRETS = "secrets"
_VOLUME = """\
printf '%s\\n' 'name: {name}-checkpoints' 'type: k8s-pvc' 'infra: k8s' 'size: 100Gi' \\
  'config: {{access_mode: ReadWriteMany}}' > volume.yaml
sky volumes apply volume.yaml"""
_HOSTS_NOTE = """\
All hosts of the learner write into that volume: its storage class must offer ReadWriteMany. One
that is lost ends the others, and their task begins again from the last checkpoint. Nobody else may
reach them: what they say to each other is not encrypted."""


def render(job: Job) -> str:
    """The file for `sky jobs launch`. Raises ConfigError for a GPU of no particular kind."""
    accelerator = job.accelerator
    if accelerator.name == ANY_GPU:
        raise ConfigError(
            "--accelerator: SkyPilot looks for a machine with GPUs of one kind; expected its name, "
            f"got {ANY_GPU}"
        )
    if accelerator.is_tpu and job.hosts > 1:
        raise ConfigError(
            f"--hosts: expected 1 with {accelerator.name}, for SkyPilot places TPU slices of one "
            f"host alone, got {job.hosts}; jobset places larger ones"
        )
    certificates = f"~/{job.name}-certificates"
    learner = commands.learner(
        job,
        workdir="/checkpoints/run",
        bind=f"0.0.0.0:{commands.PORT}",
        secrets=f"$HOME/{_SECRETS}",
        place=commands.place(job, first="$first", index="$SKYPILOT_NODE_RANK"),
    )
    return fill(
        "sky.yaml",
        {
            **(_of_one_host(job) if job.hosts == 1 else _of_several_hosts(job)),
            "command": job.command,
            "name": job.name,
            "learner_on": commands.on_what(job, "one learner"),
            "certificates": certificates,
            "certified": commands.certified(job, f"learner-{{}}.{job.name}"),
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
            "env_server_cpus": str(job.env_server_cpus * job.per_node),
            "env_server_memory": str(job.env_server_memory_gib * job.per_node),
            "env_server_spot": _yes(job.spot != "none"),
            "env_server_files": _files(certificates, "env_server"),
            "env_server_setup": _setup(job.needs.extra),
        },
    )


def _of_one_host(job: Job) -> dict[str, str]:
    """What of the file is so where one process learns."""
    return {
        "volume": f"sky volumes apply --name {job.name}-checkpoints --type k8s-pvc --infra k8s "
        "--size 100",
        "hosts_note": "",
        "hosts": "",
        "first": "",
        "own_learner": "",
        "env_server": _env_server(job, "0"),
        "serve_all": f"for _ in $(seq {job.per_node}); do serve & done",
    }


def _of_several_hosts(job: Job) -> dict[str, str]:
    """The same where one does on each of several nodes, whose ranks are the hosts' indices."""
    return {
        "volume": _VOLUME.format(name=job.name),
        "hosts_note": _HOSTS_NOTE,
        "hosts": f"num_nodes: {job.hosts}",
        "first": 'read -r first <<< "$SKYPILOT_NODE_IPS"',
        "own_learner": f"""\
local host=$(((SKYPILOT_NODE_RANK * {job.per_node} + $1) % {job.hosts}))
local environments=$((host == 0 ? {job.environments} : {job.environments_of_others}))""",
        "env_server": _env_server(job, "$host", "$environments"),
        "serve_all": f'for server in $(seq {job.per_node}); do serve "$server" & done',
    }


def _env_server(job: Job, host: str, environments: str = "") -> str:
    words = commands.env_server(
        job,
        learner=f"learner-{host}.${{SKYPILOT_JOBGROUP_NAME}}:{commands.PORT}",
        secrets=f"$HOME/{_SECRETS}",
        environments=environments,
    )
    return shell_words(words)


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
