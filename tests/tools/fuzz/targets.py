"""All that reads bytes or text of a peer, or of a disk."""

from tests.tools.fuzz import conversations, files, wire
from tests.tools.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target for target in (*wire.TARGETS, *conversations.TARGETS, *files.TARGETS)
}
