"""How often a slow test repeats what it does: all of it on record, less while it is written."""

import os

VARIABLE = "SEEDRL_GATE_SCALE"


def scaled(number: int) -> int:
    """`number` for a figure that counts, and a share of it, but one, if the variable is set."""
    return max(1, round(number * float(os.environ.get(VARIABLE, "1"))))
