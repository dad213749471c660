"""A cluster that is a script: its actors answer what a test says."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learner.jobs.accelerators import parse
from learner.jobs.job import Job, Needs
from learner.on_ray.cluster import LostError, Place
from learner.on_ray.hosted import Report, Started
from learner.on_ray.nodes import Demand, Node
from learner.on_ray.order import Order, Secrets, Work
from learner.on_ray.run import Run

NODES = [
    Node("a", "10.0.0.1", 8.0, {"GPU": 1.0}),
    Node("b", "10.0.0.2", 2.0, {}),
    Node("c", "10.0.0.3", 2.0, {}),
]
ADDRESSES = {node.id: node.address for node in NODES}
RESUMES = "seedrl launch catch_r2d2 --on ray --workdir /runs/mine"
LEARNER, FIRST, SECOND = 0, 1, 2  # actors, in the order in which they are placed


@dataclass(frozen=True, eq=False)
class Call:
    actor: int
    method: str
    words: tuple[object, ...]


class Script:
    """A cluster whose actors answer at once, but for `follow`, which the test answers.

    `steps` are gone through whenever the run waits and there is no answer.
    """

    def __init__(self, env_servers: int = 2) -> None:
        self.steps: Iterator[object] = iter(())
        self.nodes_alive = list(NODES)
        self.where: dict[int, str] = {}  # the node of each actor
        self.calls: list[Call] = []
        self.answers: dict[Call, object] = {}
        self.removed: list[int] = []
        self.sees_folder, self.version = True, "1"
        self.said: list[str] = []
        self.written = ""
        self.seconds = 0.0
        self.held: set[str] = {"follow"}
        self.idle_turns = 0
        job = Job(
            command="seedrl launch catch_r2d2 --on ray",
            config="catch_r2d2",
            needs=Needs(
                training_slots=4,
                evaluation_slots=0,
                groups=1,
                factories=(),
                extra="",
                regime="asynchronous",
            ),
            accelerator=parse("cpu"),
            env_servers=env_servers,
        )
        order = Order(
            work=Work(job, Path("/runs/mine"), "mark", ()),
            config="{}",
            options=(),
            learner=Demand(2, {"GPU": 1}),
            env_server=Demand(1),
            grace_seconds=1000.0,
            restarts=2,
            version="1",
            start_command=job.command,
            resume_command=RESUMES,
        )
        self.run = Run(
            self,
            order,
            lambda host: Secrets({"learner.key": host}, {"env_server.key": "e"}),
            say=self.said.append,
            write=self.write,
            clock=lambda: self.seconds,
        )

    def play(self, steps: Callable[[], Iterator[object]]) -> int:
        self.steps = steps()
        with self.run:
            return self.run.wait()

    def write(self, text: str) -> None:
        self.written += text

    # What the run asks for.

    def nodes(self) -> list[Node]:
        return self.nodes_alive

    def place(self, demand: Demand, node: Node | None) -> int:
        actor = len(self.where)
        alive = [each.id for each in self.nodes_alive]
        self.where[actor] = node.id if node is not None else alive[0]
        return actor

    def call(self, actor: int, method: str, *words: object) -> Call:
        call = Call(actor, method, words)
        self.calls.append(call)
        node = self.where[actor]
        match method:
            case "place":
                answer: object = Place(node, ADDRESSES[node], self.version)
            case "start_learner":
                address = f"{ADDRESSES[node]}:{actor}"
                answer = Started(address, self.sees_folder)
            case "start_env_server":
                answer = Started("", self.sees_folder)
            case _:
                answer = None
        if method not in self.held:
            self.answers[call] = answer
        return call

    def ready(self, calls: Sequence[Any], seconds: float) -> list[Any]:
        if not (found := [call for call in calls if call in self.answers]):
            next(self.steps, None)
            self.idle_turns += 1
            assert self.idle_turns < 500, "the run goes on after all that happens"
            self.seconds += seconds
        return found

    def answer(self, call: Call) -> Any:
        answer = self.answers.pop(call)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def remove(self, actor: int) -> None:
        self.removed.append(actor)

    # What the test says happens.

    def reports(
        self,
        actor: int,
        code: int | None,
        last_line: str = "",
        text: str = "",
        *,
        is_unbegun: bool = False,
    ) -> None:
        call = self._followed(actor)
        number: Any = call.words[0]
        self.answers[call] = Report(number, text, code, last_line, "/log", is_unbegun)

    def loses(self, *actors: int) -> None:
        for actor in actors:
            self.answers[self._followed(actor)] = LostError("its node died")

    def made(self, method: str, actor: int | None = None) -> list[Call]:
        return [
            call for call in self.calls if call.method == method and actor in (None, call.actor)
        ]

    def _followed(self, actor: int) -> Call:
        return self.made("follow", actor)[-1]
