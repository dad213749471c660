"""All dialogues with one env server, and what they gave."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from envs_server.building import build_one
from envs_server.conformance.findings import Finding, Findings
from envs_server.conformance.rules import Rule
from envs_server.errors import BuildError
from envs_server.recipe import read_recipe
from envs_server.server_conformance import breaches, cartpole, dialogues, endings, links, rules
from envs_server.server_conformance.rules import BrokenError
from envs_server.server_conformance.session import CARTPOLE, Plan, Session
from envs_server.server_conformance.subject import Subject
from envs_server.spaces import env_spec
from seedrl.specs import EnvSpec
from seedrl.wire.seedrl_pb2 import Environment

Dialogue = Callable[[Session], None]


class Report(NamedTuple):
    """What was found.

    Attributes:
      findings: errors and notes, in order of discovery.
      num_dialogues, num_streams, num_steps: how much was tried.
      skipped: what was not, and why, a line each.
    """

    findings: Findings
    num_dialogues: int
    num_streams: int
    num_steps: int
    skipped: list[str]

    @property
    def errors(self) -> list[Finding]:
        """What fails the check."""
        return self.findings.errors


def all_dialogues(plan: Plan) -> list[Dialogue]:
    """Those that are tried by default; later ones assume what earlier ones have shown."""
    return [
        partial(dialogues.steps, spec=known_spec(plan.environment)),
        dialogues.groups,
        dialogues.waiting,
        dialogues.fewer,
        dialogues.metrics,
        dialogues.seeds,
        *([cartpole.cartpole] if plan.is_cartpole else []),
        links.links,
        endings.returns,
        endings.returns_after_restart,
        endings.back_off,
        endings.finish,
        endings.asked_to_end,
        dialogues.refusal,
        dialogues.arguments,
        *([cartpole.limited, cartpole.sutton_barto] if _has_defaults(plan) else []),
        breaches.contradictions,
        breaches.breaches,
        endings.stays_away,
    ]


def _has_defaults(plan: Plan) -> bool:
    """Whether every number is known, and no arguments are given."""
    return plan.is_cartpole and not json.loads(plan.environment.arguments or "{}")


def known_spec(environment: Environment) -> EnvSpec | None:
    """What gymnasium says of an environment, if it is registered here and can be built."""
    try:
        one = build_one(read_recipe(environment, ()))
    except BuildError:
        return None
    try:
        return env_spec(one.observation_space, one.action_space)
    finally:
        one.close()


def check(
    subject: Subject,
    plan: Plan,
    chosen: Sequence[Dialogue] | None = None,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Holds the dialogues, `chosen` ones or all. Raises CommandNotFoundError.

    `say` is given a line as each begins: one that does not end can be told from slow ones.

    After one that could not be finished the env server is started again, so that each is judged by
    itself; one that does not even connect and say Hello, never sends a step, or refuses what it is
    asked for, is not tried further.
    """
    held = 0
    planned = all_dialogues(plan) if chosen is None else chosen
    session = Session(subject, plan, Findings())
    if chosen is None and not plan.is_cartpole:
        session.skipped.append(f"the numbers of each episode: they are known of {CARTPOLE} alone")
    try:
        for dialogue in planned:
            session.start()  # a command that cannot be started is all that there is to say
            held += 1
            say(f"dialogue {held} of {len(planned)}: {_name(dialogue)}")
            try:
                dialogue(session)
            except BrokenError as error:
                session.findings.add(error.rule, str(error))
                session.restart()
                if not _may_go_on(session, error.rule):
                    break
        if held < len(planned):
            session.skipped.append(f"{len(planned) - held} more dialogues: this one must succeed")
        return Report(
            session.findings, held, session.num_streams, session.num_steps, session.skipped
        )
    finally:
        session.close()


def _name(dialogue: Dialogue) -> str:
    function = dialogue.func if isinstance(dialogue, partial) else dialogue
    return function.__name__.strip("_").replace("_", " ")


def _may_go_on(session: Session, broken: Rule) -> bool:
    """Whether other dialogues can show more; of who says nothing each would take all patience."""
    is_silent = broken == rules.SILENCE and not session.num_steps
    return bool(session.num_streams) and not is_silent and broken != rules.REFUSED
