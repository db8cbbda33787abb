"""Random function workflows: small programs, of which `function_interpreter` makes workflows.

A `Program` prints as the code that makes it again. Every label in it is used once, or by calls that are equal, so what
a step gives depends on nothing but its arguments.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import strategies as st

# ---------------------------------------------------------------- what a program is made of


@dataclass(frozen=True)
class Do:
    """A step that takes `pace` turns of the event loop. `writes`: state, from inside the step."""

    label: str
    pace: int = 0
    writes: bool = False


@dataclass(frozen=True)
class InThread:
    """A step that is no coroutine."""

    label: str


@dataclass(frozen=True)
class Nest:
    """A step that calls steps."""

    label: str
    inner: tuple[Do, ...]


@dataclass(frozen=True)
class Inquire:
    """A step that asks."""

    label: str


@dataclass(frozen=True)
class Race:
    """Two steps of which the quicker one counts; the other is cancelled."""

    quick: Do
    slow: Do


@dataclass(frozen=True)
class Fail:
    """A step that fails, and is caught."""

    label: str
    pace: int = 0


ALWAYS = 99


@dataclass(frozen=True)
class Retry:
    """A step that fails `fails` times and has three attempts."""

    label: str
    fails: int


@dataclass(frozen=True)
class Ask:
    label: str


@dataclass(frozen=True)
class Sleep:
    seconds: int


@dataclass(frozen=True)
class Write:
    """State, written by the function itself: a value of its own, and a list changed in place."""

    label: str


@dataclass(frozen=True)
class Series:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Gather:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Group:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Loop:
    times: int
    part: Node


Node: TypeAlias = (
    "Do | InThread | Nest | Inquire | Race | Fail | Retry | Ask | Sleep | Write | Series | Gather | Group | Loop"
)


def performed(node: Node, turn: str = "") -> Counter[str]:
    """How often each step comes to its end, whatever the way it is gone."""
    match node:
        case Series(parts) | Gather(parts) | Group(parts):
            return sum((performed(part, turn) for part in parts), Counter[str]())
        case Loop(times, part):
            return sum((performed(part, f"{turn}.{number}") for number in range(times)), Counter[str]())
        case Nest(label, inner):
            return sum((performed(step, turn) for step in inner), Counter([label + turn]))
        case Race(quick, _):
            return Counter([quick.label + turn])
        case Do(label) | InThread(label) | Inquire(label) | Fail(label):
            return Counter([label + turn])
        case Retry(label, fails):
            return Counter() if fails == ALWAYS else Counter([label + turn])
        case _:
            return Counter()


@dataclass(frozen=True)
class Program:
    node: Node
    one_by_one: bool = False
    """Whether only one of several pending questions is answered at a time."""
    is_nested: bool = False
    """Whether the function stands in a graph, two levels down."""


# ---------------------------------------------------------------- drawing one


def _leaves() -> st.SearchStrategy[Node]:
    paces = st.integers(0, 3)
    do = st.builds(Do, label=st.just(""), pace=paces, writes=st.booleans())
    return st.one_of(
        do,
        st.builds(Fail, label=st.just(""), pace=paces),
        st.builds(Retry, label=st.just(""), fails=st.sampled_from((0, 1, 2, ALWAYS))),
        st.builds(Ask, label=st.just("")),
        st.builds(Sleep, st.integers(1, 9)),
        st.builds(Write, label=st.just("")),
        st.builds(Nest, label=st.just(""), inner=st.lists(do, min_size=1, max_size=2).map(tuple)),
        st.just(InThread("")),
        st.just(Inquire("")),
        st.builds(Race, do, do),
    )


def _composed(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(parts, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Series, several),
        st.builds(Gather, several),
        st.builds(Group, several),
        st.builds(Loop, st.integers(1, 2), parts),
    )


class _Labels:
    """Names each leaf after its place. `twins`: all leaves of one kind have the same name, so equal calls are made."""

    def __init__(self, *, twins: bool) -> None:
        self._twins = twins
        self._count = 0

    def next(self) -> str:
        return "twin" if self._twins else self.unique()

    def unique(self) -> str:
        self._count += 1
        return str(self._count)

    def _named_step(self, step: Do) -> Do:
        return Do(f"d{self.next()}-{step.pace}{step.writes:d}", step.pace, step.writes)

    def named(self, node: Node) -> Node:
        match node:
            case Series(parts) | Gather(parts) | Group(parts):
                return type(node)(tuple(self.named(part) for part in parts))
            case Loop(times, part):
                return Loop(times, self.named(part))
            case Nest(_, inner):
                return Nest(f"n{self.next()}", tuple(map(self._named_step, inner)))
            case Race(quick, slow):
                return Race(Do(f"q{self.next()}", 0, quick.writes), Do(f"s{self.next()}", 20, slow.writes))
            case Inquire():
                return Inquire(f"q{self.next()}")
            case Sleep():
                return node
            case Do():
                return self._named_step(node)
            case Fail(_, pace):
                return Fail(f"f{self.next()}", pace)
            case Retry(_, fails):
                return Retry(f"r{self.unique()}", fails)
            case Ask():
                return Ask(f"a{self.next()}")
            case Write():
                return Write(f"w{self.next()}")
            case InThread():
                return InThread(f"t{self.next()}")


@st.composite
def programs(draw: st.DrawFn) -> Program:
    leaves = _leaves()
    node = draw(_composed(leaves | _composed(leaves | _composed(leaves))))
    is_nested = draw(st.sampled_from((False, False, True)))
    return Program(_Labels(twins=draw(st.booleans())).named(node), draw(st.booleans()), is_nested)
