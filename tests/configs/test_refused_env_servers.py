"""A Slurm job whose env servers all end, by the script itself: srun and scancel are stand-ins."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.configs.job_files import text_of
from tests.patience import SECONDS

_STAND_INS = {
    "seedrl": "",
    "scontrol": "printf '%s\\n' $3\n",
    "srun": """\
while [[ $1 == --* ]]; do
  [[ $1 != --het-group=* ]] || group=${1#*=}
  shift
done
program=GROUP_$group
exec bash -c "${!program}"
""",
    # The learner waits for it.
    "scancel": 'printf "%s\\n" "$*" > "$ASKED"\n',
}
_SAVES = 'read -r words < "$ASKED"; echo "asked: $words"; exit '


def ends(name: str, folder: Path, learner: str, env_servers: str) -> tuple[int, str]:
    """The exit code of the job, and what it printed."""
    for program, text in _STAND_INS.items():
        path = folder / program
        path.write_text(f"#!/usr/bin/env bash\n{text}")
        path.chmod(0o700)
    os.mkfifo(folder / "asked")
    job = subprocess.Popen(
        ["bash", "-c", text_of(name)],
        env={
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "ASKED": str(folder / "asked"),
            "GROUP_0": learner,
            "GROUP_1": env_servers,
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST_HET_GROUP_0": "node0 node1",
            "SLURM_SUBMIT_DIR": str(folder),
        },
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        raise
    return job.returncode, said


@pytest.mark.parametrize("name", ["slurm.sbatch", "slurm-hosts.sbatch"])
@pytest.mark.parametrize("learners_own", [0, 75])
def test_a_learner_whose_env_servers_are_all_refused_saves_and_the_job_fails(
    tmp_path: Path, name: str, learners_own: int
) -> None:
    found = ends(name, tmp_path, learner=f"{_SAVES}{learners_own}", env_servers="exit 2")
    assert found == (2, "asked: --signal=TERM 7\n")


@pytest.mark.parametrize(
    ("learner", "env_servers", "code"),
    [
        ("exit 7", "exec sleep 1000", 7),
        ("exit 0", "exec sleep 1000", 0),
        # They have heard that it is over, or a signal has ended them, as it does the learner.
        ("exit 1", "exit 0", 1),
        ("exit 0", "exit 143", 0),
        ("exit 2", "exit 0", 2),
    ],
)
def test_else_the_job_ends_as_its_learner_does(
    tmp_path: Path, learner: str, env_servers: str, code: int
) -> None:
    assert ends("slurm.sbatch", tmp_path, learner, env_servers) == (code, "")
