"""What is asked of an env server: each rule with where its text stands in seedrl.proto."""

from envs_server.conformance.rules import Rule


class BrokenError(Exception):
    """A rule was broken, and the dialogue cannot continue."""

    def __init__(self, rule: Rule, text: str) -> None:
        super().__init__(text)
        self.rule = rule


def _see(place: str) -> str:
    return f"see {place} in seedrl.proto"


CONNECT = Rule("connect", "open one Connect stream to the learner's address, and say Hello")
HELLO = Rule("hello", _see("Hello"))
VERSION = Rule("version", _see("VERSION"))
MESSAGE = Rule(
    "message", "send messages of exactly one field; see the last paragraph above `syntax`"
)
FAILURE = Rule("failure", "fix the environment: it must not fail")
SILENCE = Rule("silence", "send Ready after Assign, a step of each group, and one for each actions")
READY = Rule("ready", _see("Ready"))
SPEC = Rule("spec", _see("Ready.spec"))
SPEC_DIFFERS = Rule("spec-differs", "build what Assign names, or refuse")
ARGUMENTS = Rule("arguments", _see("Environment.arguments"))
ARGUMENTS_TAKEN = Rule("arguments-taken", "right only if it takes arguments of any name", False)
METRICS = Rule("metrics", _see("Environment.metrics and Ready.metrics"))
PAYLOAD = Rule("payload", _see("STEPS AND ACTIONS"))
SEQUENCE = Rule("sequence", "count each group's steps from 0, and send each once")
ONE_IN_FLIGHT = Rule("one-in-flight", "wait for a group's actions before its next step")
EPISODE_ORDER = Rule(
    "episode-order", "FIRST begins, LAST ends, FIRST follows LAST; nothing else does"
)
GROUPS = Rule("groups", "step a group as soon as its actions arrive, whatever the others wait for")
PATIENCE = Rule("patience", "wait for actions without a limit; see TIME LIMITS in seedrl.proto")
UNKNOWN_FIELDS = Rule("unknown-fields", "ignore them; see VERSION in seedrl.proto")
FEWER = Rule("fewer-environments", "build what Assign lists, which may be less than was offered")
SEEDS = Rule("seeds", "draw all that is random in an environment from the seed of its slot")
SEED_IGNORED = Rule(
    "seed-ignored", "with other seeds the episodes were the same; may be meant", False
)
RETURN = Rule("return", _see("HOW A STREAM ENDS"))
RETURN_LATE = Rule(
    "return-late",
    f"open a new channel for each stream, or bound its back-off; {_see('TRANSPORT')}",
)
NEVER_RETURN = Rule("never-return", _see("HOW A STREAM ENDS"))
ERROR_CODE = Rule("error-code", "end with an exit code other than 0 after an error", False)
BACK_OFF = Rule("back-off", "pause at random below a bound that doubles from 0.1 s")
FINISH = Rule("finish", "training is over: do not return, and end with exit code 0")
REFUSAL = Rule("refusal", _see("Refusal"))
SENT = Rule("sent", _see("Sent"))
SENT_MISSING = Rule("sent-missing", "the learner's ledger counts these steps as lost", False)
LINK = Rule("link", _see("LOCAL SOCKET"))

ORACLE_START = Rule("cartpole-start", "begin with four numbers drawn between -0.05 and 0.05")
ORACLE_SEED = Rule(
    "cartpole-seed", "draw the start of every episode, from the seed of the environment's slot"
)
ORACLE_STEP = Rule(
    "cartpole-step", "step as gymnasium's CartPole-v1 does, with its Euler integrator"
)
ORACLE_REWARD = Rule("cartpole-reward", "give 1 for each step, and 0 on FIRST")
ORACLE_END = Rule(
    "cartpole-end", "end beyond 2.4 or 12 degrees with discount 0, after 500 steps with discount 1"
)
