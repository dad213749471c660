"""Kubernetes JobSet: a claim for checkpoints, a network policy, and the set of both jobs."""

from learner.jobs import commands
from learner.jobs.job import Job
from learner.jobs.template import fill, yaml_list, yaml_text

# The account that both images make.
_POD_SECURITY = """\
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
automountServiceAccountToken: false"""
_CONTAINER_SECURITY = """\
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]"""
_TPU_NOTE = """\
Not tried: whether libtpu of your machine type runs without privileges; if it does not, give the
learner's container what its documentation asks for (a capability, or a higher memlock limit)."""
_SPOT_NOTE = """\
Spot nodes of GKE grant 15 s unless their pool says otherwise; then only what the last interval
saved is there to resume from."""
_SPOT_LABEL = "cloud.google.com/gke-spot"


def render(job: Job) -> str:
    """The file for `kubectl apply`."""
    learner, *learner_args = commands.learner(
        job,
        workdir="/checkpoints/run",
        bind=f"0.0.0.0:{commands.PORT}",
        secrets="/secrets",
        health_port=commands.HEALTH_PORT,
    )
    env_server, *env_server_args = commands.env_server(
        job, learner=f"$(LEARNER_HOST):{commands.PORT}", secrets="/secrets"
    )
    return fill(
        "jobset.yaml",
        {
            "command": job.command,
            "name": job.name,
            "host": f"{job.name}-learner-0-0.{job.name}",
            "slots": commands.slots(job),
            "builds": commands.builds(job),
            "on_what": job.accelerator.in_words,
            "notes": _TPU_NOTE if job.accelerator.is_tpu else "",
            "queue": _queue(job),
            "port": str(commands.PORT),
            "health_port": str(commands.HEALTH_PORT),
            "spot_note": _SPOT_NOTE if job.spot == "all" else "",
            "pod_security": _POD_SECURITY,
            "container_security": _CONTAINER_SECURITY,
            "learner_node": _learner_node(job),
            "learner_image": commands.learner_image(job),
            "learner_command": learner,
            "learner_args": yaml_list(learner_args),
            "learner_cpus": str(job.learner_cpus),
            "learner_memory": str(job.learner_memory_gib),
            "devices": _devices(job),
            "env_servers": str(job.env_servers),
            "env_server_node": _env_server_node(job),
            "env_server_image": commands.env_server_image(job),
            "env_server_command": env_server,
            "env_server_args": yaml_list(env_server_args),
            "env_server_cpus": str(job.env_server_cpus),
            "env_server_memory": str(job.env_server_memory_gib),
        },
    )


def _queue(job: Job) -> str:
    """The label by which Kueue admits the set as a whole."""
    return f"labels:\n  kueue.x-k8s.io/queue-name: {yaml_text(job.queue)}" if job.queue else ""


def _devices(job: Job) -> str:
    accelerator = job.accelerator
    if accelerator.is_tpu:
        return f"google.com/tpu: {accelerator.count}"
    return f"nvidia.com/gpu: {accelerator.count}" if accelerator.is_gpu else ""


def _learner_node(job: Job) -> str:
    accelerator, labels = job.accelerator, {}
    if accelerator.is_tpu:
        labels["cloud.google.com/gke-tpu-accelerator"] = accelerator.gke
        labels["cloud.google.com/gke-tpu-topology"] = accelerator.topology
    elif accelerator.gke:
        labels["cloud.google.com/gke-accelerator"] = accelerator.gke
    tolerated = ["nvidia.com/gpu"] if accelerator.is_gpu else []
    return _placed(labels, tolerated, is_spot=job.spot == "all")


def _env_server_node(job: Job) -> str:
    return _placed({}, [], is_spot=job.spot != "none")


def _placed(labels: dict[str, str], tolerated: list[str], *, is_spot: bool) -> str:
    """The lines that say which nodes a pod may run on."""
    if is_spot:
        labels, tolerated = {**labels, _SPOT_LABEL: "true"}, [*tolerated, _SPOT_LABEL]
    lines = ["nodeSelector:"] if labels else []
    lines += [f"  {label}: {yaml_text(value)}" for label, value in labels.items()]
    lines += ["tolerations:"] if tolerated else []
    for key in tolerated:
        lines += [f"  - key: {key}", "    operator: Exists", "    effect: NoSchedule"]
    return "\n".join(lines)
