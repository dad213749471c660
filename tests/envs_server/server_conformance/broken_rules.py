"""Which rules an env server of a test breaks."""

from envs_server.server_conformance.check import Dialogue, all_dialogues, check
from envs_server.server_conformance.session import CARTPOLE, Plan
from seedrl.wire.seedrl_pb2 import Environment
from tests.envs_server.server_conformance.example_server import ExampleServer
from tests.patience import SECONDS

PLAN = Plan(
    environment=Environment(id=CARTPOLE),
    steps=30,
    patience_seconds=SECONDS,
    quiet_seconds=SECONDS,
    idle_seconds=0.0,
)


def broken_rules(server: ExampleServer, *chosen: Dialogue, plan: Plan = PLAN) -> dict[str, str]:
    """The rules that `server` breaks in these dialogues, notes included, and the texts."""
    found = check(server, plan, chosen or all_dialogues(plan)).findings
    return {finding.rule.name: finding.text for finding in [*found.errors, *found.notes]}
