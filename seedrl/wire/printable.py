"""What the other side says, as it may be printed."""

LONGEST_FROM_ENV_SERVER = 200
# Its texts give advice at their end, and there is one learner.
LONGEST_FROM_LEARNER = 500


def printable(text: str, longest: int = LONGEST_FROM_ENV_SERVER) -> str:
    """`text` as one line of at most `longest` characters.

    Raw, it could move the cursor, forge lines of a log, or fill the disk.
    """
    shown = text[: longest + 1]
    shown = " ".join("".join(c if c.isprintable() else " " for c in shown).split())
    return shown if len(text) <= longest else f"{shown[: longest - 1]}…"
