"""Commands on stdin, answers on stdout: one JSON object a line. Imports nothing of seedrl."""

import json
import os
import sys
import time
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


def rate(work: Callable[[], float], seconds: float) -> float:
    """Repeats `work`, which returns how much it did, for `seconds`; amount per second."""
    start = time.perf_counter()
    amount = work()
    while (elapsed := time.perf_counter() - start) < seconds:
        amount += work()
    return amount / elapsed


Works = dict[str, Callable[[], float]]


def answer_measures(prepare: Callable[[dict[str, Any]], Works]) -> None:
    """Prepares as the first command says, then answers until stdin ends.

    A command `{"measure": name, "seconds": s}` is answered with `{"rate": r}`.
    """
    works: Works = {}
    for command, answer in commands():
        if "measure" in command:
            answer(rate=rate(works[command["measure"]], command["seconds"]))
        else:
            works = prepare(command)
            answer(ready=True)
