"""The oracle: environments that fail are built again, cost their own episodes, and mix nothing."""

import dataclasses
import json
from collections.abc import Callable

from seedrl.config import Config
from tests.system.harness import LearnerRun
from tests.system.oracle import Oracle
from tests.system.test_experience import CONFIG, LENGTHS, NUM_ACTIONS, PAGE_STEPS

_FACTORY = "tests.system.restarting_environment:make"


def test_restarts_cut_their_own_stream_and_every_row_is_accounted_for(
    learner_run: Callable[[Config], LearnerRun],
) -> None:
    arguments = {"lengths": LENGTHS, "num_actions": NUM_ACTIONS, "run_seed": CONFIG.seed}
    environment = dataclasses.replace(
        CONFIG.environment,
        id=_FACTORY,
        arguments=json.dumps(arguments),
        failures_per_minute=10**6,
        failures_per_hour=10**6,
    )
    run = learner_run(dataclasses.replace(CONFIG, environment=environment))
    for num_envs in (4, 2):
        run.add_env_server(num_envs, "--allow-env", _FACTORY)
    run.start()
    run.run_for(env_steps=2500, updates=10)
    outcome = run.finish()
    oracle = Oracle(outcome, LENGTHS, NUM_ACTIONS)
    assert oracle.check()[:10] == []
    epochs = {stream.epoch for stream in oracle.streams.values()}
    assert len(epochs) > 5 and len(oracle.streams) > 10
    ledger = outcome.ledger
    pages = sum(len(stream.pages) for stream in oracle.streams.values())
    assert ledger["stored"] == pages * PAGE_STEPS
    assert ledger["discarded"] > 0
    accounts = ("stored", "partial", "discarded", "evaluation")
    assert ledger["answered"] == sum(ledger[account] for account in accounts)
    assert ledger["accepted"] == ledger["answered"] + ledger["struck"]
    assert ledger["sent"] == ledger["received"] + ledger.get("lost", 0)
    # No lease has ended for it: only the two of the start, and those that grew.
    assert ledger.get("lost", 0) <= 6
