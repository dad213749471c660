"""Trains the agent of a configuration on the tiny tasks of probes.py.

    python check.py CONFIG [TASK ...]

CONFIG is a bundled name or the path of a config file. One line for each task and kind of action:
passed, failed, or the error of an agent that cannot take it. Exit code 1 if one has failed, or if a
task was passed with neither kind of action.
"""

import sys
import tempfile
from pathlib import Path

import seedrl
from seedrl.run import RunError

# Mean return over 20 episodes to reach, twice: nine tenths of the best, or above any policy that
# has the mistake the task is for.
TARGETS = {
    **dict.fromkeys(("one_step", "zero_observation", "two_steps", "delayed_reward"), 0.9),
    **dict.fromkeys(("sparse_reward", "action_mask", "memory"), 0.9),
    **dict.fromkeys(("discrete_observation", "one_hot_bytes", "float_picture"), 0.9),
    "truncation": 0.45,
    "small_rewards": 0.009,
    "large_rewards": 90.0,
}
SECONDS = 60  # of a task, with the start of its processes


def check(config, task, *, continuous, **options):
    """Trains on a task; "passed", "failed" or the run's error line, and the best mean return."""
    arguments = {"name": task, "continuous": continuous}
    evaluation = {"interval_steps": 1_000, "episodes": 20, "confirm_episodes": 20}
    with tempfile.TemporaryDirectory() as folder:
        run = seedrl.train(
            config,
            workdir=Path(folder) / task,
            environment={"id": "probes:make", "arguments": arguments},
            evaluation={**evaluation, "target_return": TARGETS[task]},
            # Each plays two episodes of a round: those of `truncation` pay 0 and 1 alternately.
            serving={"evaluation_slots": 10},
            learning={"total_steps": 10**8, "max_seconds": SECONDS},
            logging={"learning_curve": False},
            **options,
        )
        try:
            code = run.wait()
        except RunError as error:
            return str(error), None
        rounds = [line["mean_return"] for line in run.metrics if line["kind"] == "evaluation"]
    return "failed" if code else "passed", max(rounds, default=None)


def main(config, *tasks, **options):
    has_failed, unpassed = False, {*(tasks or TARGETS)}
    for continuous in (False, True):
        for task in tasks or TARGETS:
            verdict, best = check(config, task, continuous=continuous, **options)
            kind = "continuous" if continuous else "discrete"
            got = "" if best is None else f", got {best:.3g}, wanted {TARGETS[task]:g}"
            print(f"{task}, {kind}: {verdict}{got}", flush=True)
            has_failed |= verdict == "failed"
            if verdict == "passed":
                unpassed.discard(task)
    return int(has_failed or bool(unpassed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
