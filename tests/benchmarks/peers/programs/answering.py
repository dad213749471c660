"""Commands on stdin, answers on stdout: one JSON object a line. Imports nothing of seedrl."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any


def commands() -> Iterator[tuple[dict[str, Any], Callable[..., None]]]:
    """Every command with the function that answers it."""
    answers = os.fdopen(os.dup(1), "w")
    # What libraries print is no answer.
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    for line in sys.stdin:
        yield json.loads(line), answer
