"""Kubernetes JobSet: a claim for checkpoints, a network policy, and the set of both jobs."""

from collections.abc import Sequence

from learner.jobs import commands
from learner.jobs.job import Job
from learner.jobs.template import fill, shell_words, yaml_list, yaml_text

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
_HOSTS_NOTE = """\
All hosts of the learner write into the claim: its storage class must offer ReadWriteMany. One that
is lost ends the others, and their Job starts all of them again from the last checkpoint; one whose
node is drained ends the run on all, with everything saved: resume it as above. One that is taken
away before all have met is replaced, and the others wait for it."""
# How long hosts wait for each other, and then for jax. That is said in learner/hosts, a layer above
# this one; a test compares.
_MEETING_SECONDS, _JOINING_SECONDS = 900, 120
_PROBE_SECONDS = 10
# Of the learner's liveness probe in the template.
_SILENT_PROBES = 60
_START_PROBES = (_MEETING_SECONDS + _JOINING_SECONDS) // _PROBE_SECONDS + _SILENT_PROBES
_STARTUP_PROBE = f"""\
# Nobody answers until all hosts have met: they wait {_MEETING_SECONDS} s for each other and
# {_JOINING_SECONDS} s for jax, and then name who is missing, unless they were ended before.
startupProbe:
  httpGet:
    path: /healthz
    port: health
  periodSeconds: {_PROBE_SECONDS}
  failureThreshold: {_START_PROBES}"""
_HOSTS_RULE = """\
# Hosts of the learner meet, and jax's collectives choose ports of their own.
- from:
    - podSelector:
        matchLabels:
          jobset.sigs.k8s.io/jobset-name: {name}
          jobset.sigs.k8s.io/replicatedjob-name: learner"""
_OTHER_PEERS = """\
- podSelector:
    matchLabels:
      jobset.sigs.k8s.io/jobset-name: {name}
      jobset.sigs.k8s.io/replicatedjob-name: envs-of-others"""
# All hosts of a slice are nodes of one pool, and nobody else's.
_SLICE = """\
metadata:
  annotations:
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool"""
# Not for a host of several: the others end with 0, too, and no pod would meet the new one.
_REPLACED = """\
# Asked to end, it ends with 0. The Job would take its work for done, and
# start nobody in the place of a pod that was taken away.
trap 'kill $!; wait $! && exit 143; exit $?' TERM
{program} &
wait $!"""
# Attempts of each host of the learner.
_ATTEMPTS = 6


def render(job: Job) -> str:
    """The file for `kubectl apply`."""
    learner = commands.learner(
        job,
        workdir="/checkpoints/run",
        bind=f"0.0.0.0:{commands.PORT}",
        secrets="/secrets",
        health_port=commands.HEALTH_PORT,
        place=commands.place(job, first="$(LEARNER_HOST)", index="$(HOST_INDEX)"),
    )
    has_others = job.hosts > 1
    return fill(
        "jobset.yaml",
        {
            "command": job.command,
            "name": job.name,
            "learner": commands.on_what(job, "one learner"),
            "certified": commands.certified(job, f"{job.name}-learner-0-{{}}.{job.name}"),
            "slots": commands.slots(job),
            "hosts": str(job.hosts),
            "hosts_note": _HOSTS_NOTE if has_others else "",
            "hosts_rule": _HOSTS_RULE.format(name=job.name) if has_others else "",
            "other_peers": _OTHER_PEERS.format(name=job.name) if has_others else "",
            "access": "ReadWriteMany" if has_others else "ReadWriteOnce",
            "slice": _SLICE if has_others and job.accelerator.is_tpu else "",
            "indexed": "completionMode: Indexed" if has_others else "",
            "learner_restarts": str(_ATTEMPTS * job.hosts),
            "builds": commands.builds(job),
            "notes": _TPU_NOTE if job.accelerator.is_tpu else "",
            "queue": _queue(job),
            "port": str(commands.PORT),
            "health_port": str(commands.HEALTH_PORT),
            "spot_note": _SPOT_NOTE if job.spot == "all" else "",
            "pod_security": _POD_SECURITY,
            "container_security": _CONTAINER_SECURITY,
            "learner_node": _learner_node(job),
            "learner_image": commands.learner_image(job),
            "learner_run": _run(learner) if has_others else _run_replaced(learner),
            "learner_place": _variables(_FIRST, _HOST_INDEX) if has_others else "",
            "startup_probe": _STARTUP_PROBE if has_others else "",
            "learner_cpus": str(job.learner_cpus),
            "learner_memory": str(job.learner_memory_gib),
            "devices": _devices(job),
            "env_server_jobs": _of_first(job) + (_of_others(job) if has_others else ""),
        },
    )


# A variable's name, and the field of the pod that it is read from.
_FIRST = ("LEARNER_HOST", "metadata.annotations['jobset.sigs.k8s.io/coordinator']")
_HOST_INDEX = ("HOST_INDEX", "metadata.annotations['batch.kubernetes.io/job-completion-index']")
_SET = ("JOBSET", "metadata.labels['jobset.sigs.k8s.io/jobset-name']")
_JOB_INDEX = ("JOB_INDEX", "metadata.labels['jobset.sigs.k8s.io/job-index']")


def _variables(*read: tuple[str, str]) -> str:
    lines = ["env:"]
    for name, field in read:
        lines += [f"  - name: {name}", "    valueFrom:", "      fieldRef:"]
        lines.append(f"        fieldPath: {field}")
    return "\n".join(lines)


def _run(words: Sequence[str]) -> str:
    """The lines of a container that say what it runs."""
    command, *args = words
    return f"command: [{command}]\nargs:\n  " + yaml_list(args).replace("\n", "\n  ")


def _run_replaced(words: Sequence[str], before: str = "") -> str:
    """The same where a pod that is taken away is to be replaced; `before` is run first."""
    script = before + _REPLACED.format(program=shell_words(words))
    return "command: [sh, -c]\nargs:\n  - |\n    " + script.replace("\n", "\n    ")


def _of_first(job: Job) -> str:
    """The env servers of the first host: a Job."""
    words = commands.env_server(job, learner=f"$LEARNER_HOST:{commands.PORT}", secrets="/secrets")
    return _env_servers(
        job,
        name="envs",
        replicas=1,
        run=_run_replaced(words),
        variables=_variables(_FIRST),
    )


def _of_others(job: Job) -> str:
    """Those of every other host: a Job for each, whose index is one less than the host's."""
    words = commands.env_server(
        job,
        learner=f"$JOBSET-learner-0-$host.{job.name}:{commands.PORT}",
        secrets="/secrets",
        environments=job.environments_of_others,
    )
    return _env_servers(
        job,
        name="envs-of-others",
        replicas=job.hosts - 1,
        run=_run_replaced(words, before="host=$((JOB_INDEX + 1))\n"),
        variables=_variables(_SET, _JOB_INDEX),
    )


def _env_servers(job: Job, *, name: str, replicas: int, run: str, variables: str) -> str:
    return fill(
        "jobset_envs.yaml",
        {
            "job": name,
            "name": job.name,
            "replicas": str(replicas),
            "env_servers": str(job.per_host),
            "env_server_run": run,
            "learner_name": variables,
            "pod_security": _POD_SECURITY,
            "container_security": _CONTAINER_SECURITY,
            "env_server_node": _env_server_node(job),
            "env_server_image": commands.env_server_image(job),
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
