"""What is asked of an env server: each rule with where its text stands in seedrl.proto."""

from envs_server.conformance.rules import Rule


class BrokenError(Exception):
    """A rule was broken, and the dialogue cannot continue."""

    def __init__(self, rule: Rule, text: str) -> None:
        super().__init__(text)
        self.rule = rule


def _see(place: str) -> str:
    return f"see {place} in seedrl.proto"


CONNECT = Rule(
    "connect",
    f"open one Connect stream to the learner's address, and say Hello; {_see('TRANSPORT')}",
)
HELLO = Rule("hello", _see("Hello"))
VERSION = Rule("version", _see("VERSION"))
MESSAGE = Rule("message", f"send messages of exactly one field; {_see('MESSAGES')}")
FAILURE = Rule("failure", f"fix the environment: it must not fail; {_see('Failure')}")
SILENCE = Rule(
    "silence",
    "send Ready after Assign, a step of each group, and one for each actions; "
    "see the first paragraphs of seedrl.proto",
)
REFUSED = Rule(
    "refused",
    "give --environment and --arguments that the env server can build, or build it; "
    f"{_see('Environment')}",
)
READY = Rule("ready", _see("Ready"))
SPEC = Rule("spec", _see("Ready.spec"))
SPEC_DIFFERS = Rule("spec-differs", f"build what Assign names, or refuse; {_see('Environment')}")
ARGUMENTS = Rule("arguments", _see("Environment.arguments"))
ARGUMENTS_TAKEN = Rule(
    "arguments-taken",
    f"right only if it takes arguments of any name; {_see('Environment.arguments')}",
    False,
)
METRICS = Rule("metrics", _see("Environment.metrics and Ready.metrics"))
PAYLOAD = Rule("payload", _see("STEPS AND ACTIONS"))
SEQUENCE = Rule(
    "sequence",
    f"count each group's steps from 0, and send each once; {_see('STEPS AND ACTIONS')}",
)
ONE_IN_FLIGHT = Rule(
    "one-in-flight",
    f"wait for a group's actions before its next step; {_see('STEPS AND ACTIONS')}",
)
EPISODE_ORDER = Rule(
    "episode-order",
    f"FIRST begins, LAST ends, FIRST follows LAST; nothing else does; {_see('STEPS AND ACTIONS')}",
)
GROUPS = Rule(
    "groups",
    "step a group as soon as its actions arrive, whatever the others wait for; "
    "see the first paragraphs of seedrl.proto",
)
PATIENCE = Rule("patience", f"wait for actions without a limit; {_see('TIME LIMITS')}")
FEWER = Rule(
    "fewer-environments",
    f"build what Assign lists, which may be less than was offered; {_see('SLOTS')}, and unknown "
    "fields under VERSION",
)
SEEDS = Rule(
    "seeds",
    f"draw all that is random in an environment from the seed of its slot; {_see('Group.seeds')}",
)
SEED_IGNORED = Rule(
    "seed-ignored",
    f"with other seeds the episodes were the same; may be meant; {_see('Group.seeds')}",
    False,
)
RETURN = Rule("return", _see("HOW A STREAM ENDS"))
RETURN_LATE = Rule(
    "return-late",
    "pause for less than a second (HOW A STREAM ENDS), and open a new channel for each stream or "
    f"bound the back-off of the one (TRANSPORT): {_see('both')}",
)
NEVER_RETURN = Rule("never-return", _see("HOW A STREAM ENDS"))
ERROR_CODE = Rule(
    "error-code",
    f"end with an exit code other than 0 after an error; {_see('HOW A STREAM ENDS')}",
)
BACK_OFF = Rule(
    "back-off",
    f"pause at random below a bound that doubles from 0.1 s; {_see('HOW A STREAM ENDS')}",
)
FINISH = Rule(
    "finish",
    f"training is over: do not return, and end with exit code 0; {_see('HOW A STREAM ENDS')}",
)
ASKED_TO_END = Rule(
    "asked-to-end",
    f"handle SIGTERM: cancel the stream, and end with exit code 0; {_see('HOW A STREAM ENDS')}",
    False,
)
CONTRADICTION = Rule("contradiction", f"check Assign before building; {_see('BREACHES')}")
BREACH = Rule(
    "learner-breach",
    f"cancel the stream, say why in the log, and end with an error or return; {_see('BREACHES')}",
)
REFUSAL = Rule("refusal", _see("Refusal"))
SENT = Rule("sent", _see("Sent"))
SENT_MISSING = Rule(
    "sent-missing", f"the learner's ledger counts these steps as lost; {_see('Sent')}", False
)
LINK = Rule("link", _see("LOCAL SOCKET"))

_CARTPOLE = "see gymnasium/envs/classic_control/cartpole.py"
ORACLE_START = Rule(
    "cartpole-start", f"begin with four numbers drawn between -0.05 and 0.05; {_CARTPOLE}"
)
ORACLE_SEED = Rule(
    "cartpole-seed",
    "draw the start of every episode, from the seed of the environment's slot; "
    f"{_see('Group.seeds')}",
)
ORACLE_STEP = Rule(
    "cartpole-step",
    f"step as gymnasium's CartPole-v1 does, with its Euler integrator; {_CARTPOLE}",
)
ORACLE_REWARD = Rule(
    "cartpole-reward",
    f"give 1 for each step (other arguments, other rewards), and 0 on FIRST; {_CARTPOLE}",
)
ORACLE_END = Rule(
    "cartpole-end",
    "end beyond 2.4 or 12 degrees with discount 0, after 500 steps (or max_episode_steps) with "
    f"discount 1; {_CARTPOLE}, and LAST under STEPS AND ACTIONS in seedrl.proto",
)
