"""Each message is delivered exactly as a plain model of the graph predicts, in the order of the sends."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from hypothesis import given, strategies as st
from tests.property.engine_graphs import Wire, add_wire, wirings

from perdure import Executor, WorkflowBuilder, WorkflowContext, WorkflowEvent, handler
from perdure.engine.thread.compiled import Routes, Sorter
from perdure.engine.thread.position import Position


@dataclass(frozen=True)
class Letter:
    value: int


@dataclass(frozen=True)
class Parcel:
    value: int


class TakesAll(Executor):
    @handler
    async def single(self, sent: Letter | Parcel, ctx: WorkflowContext[Letter | Parcel]) -> None: ...

    @handler
    async def many(self, sent: list[Letter | Parcel], ctx: WorkflowContext[Letter | Parcel]) -> None: ...


class TakesLetters(Executor):
    @handler
    async def single(self, sent: Letter, ctx: WorkflowContext[Letter | Parcel]) -> None: ...

    @handler
    async def many(self, sent: list[Letter], ctx: WorkflowContext[Letter | Parcel]) -> None: ...


@dataclass(frozen=True)
class Map:
    """A graph whose executors differ only in what they accept."""

    only_letters: tuple[bool, ...]
    wires: tuple[Wire, ...]

    def routes(self) -> Routes:
        workers = [(TakesLetters if only else TakesAll)(f"n{place}") for place, only in enumerate(self.only_letters)]
        builder = WorkflowBuilder(name="map", start_executor=workers[0])
        for wire in self.wires:
            add_wire(builder, wire, workers)
        return Routes(builder.graph())

    def accepts(self, place: int, *sent: Any) -> bool:
        return not (self.only_letters[place] and any(isinstance(item, Parcel) for item in sent))


@dataclass(frozen=True)
class Sent:
    source: int
    data: Letter | Parcel
    target: int | None = None


@st.composite
def maps(draw: st.DrawFn) -> Map:
    only_letters = draw(st.lists(st.booleans(), min_size=3, max_size=8))
    return Map(tuple(only_letters), draw(wirings(len(only_letters))))


@st.composite
def maps_and_sends(draw: st.DrawFn) -> tuple[Map, list[Sent]]:
    """Joins receive repeatedly from their senders, so that they hold several messages of one sender."""
    where = draw(maps())
    places = st.integers(0, len(where.only_letters) - 1)
    joined = [source for wire in where.wires if wire.kind == "fan_in" for source in wire.sources]
    sources = st.sampled_from(joined) | places if joined else places
    data = st.builds(Letter, st.integers(0, 9)) | st.builds(Parcel, st.integers(0, 9))
    return where, draw(st.lists(st.builds(Sent, sources, data, st.none() | st.none() | places), max_size=12))


# ---------------------------------------------------------------- the model


Delivered = tuple[int, Any, tuple[int, ...]]
"""(target, data, the senders)"""


def chosen(wire: Wire, data: Any) -> list[int]:
    """The targets that a wire which starts at one executor picks for a message, whatever they accept."""
    if wire.kind == "conditional":
        return [wire.targets[0]] if data.value % wire.step == 0 else []
    if wire.kind == "selection":
        return [target for place, target in enumerate(wire.targets) if (data.value + wire.step) >> place & 1]
    if wire.kind == "switch":
        taken = [
            target for place, target in enumerate(wire.targets[:-1]) if data.value % wire.step == place % wire.step
        ]
        return [*taken, wire.targets[-1]][:1]
    return list(wire.targets)


def model(where: Map, sent: list[Sent]) -> tuple[list[Delivered], dict[int, list[tuple[int, Any]]]]:
    """What is delivered, in order; and what each join (by the place of its wire) still holds."""
    delivered: list[Delivered] = []
    waiting: dict[int, list[tuple[int, Any]]] = {}
    for message in sent:
        for number, wire in enumerate(where.wires):
            if message.source not in wire.sources:
                continue
            if wire.kind == "fan_in":
                if message.target in (None, wire.targets[0]):
                    delivered += _join(where, number, waiting.setdefault(number, []), message)
                continue
            for target in chosen(wire, message.data):
                if message.target in (None, target) and where.accepts(target, message.data):
                    delivered.append((target, message.data, (message.source,)))
    return delivered, {number: held for number, held in waiting.items() if held}


def _join(where: Map, number: int, held: list[tuple[int, Any]], message: Sent) -> list[Delivered]:
    wire = where.wires[number]
    held.append((message.source, message.data))
    if {source for source, _ in held} != set(wire.sources):
        return []
    together = [data for place in wire.sources for source, data in held if source == place]
    held.clear()
    return [(wire.targets[0], together, wire.sources)] if where.accepts(wire.targets[0], *together) else []


# ---------------------------------------------------------------- the laws


async def route(
    routes: Routes, sent: list[Sent], buffers: dict[str, dict[str, list[Any]]], first_id: int = 1
) -> tuple[Position, list[WorkflowEvent]]:
    sorter = Sorter(Position(buffers=buffers, next_delivery_id=first_id))
    for message in sent:
        target = None if message.target is None else f"n{message.target}"
        pending = routes.send(sorter, f"n{message.source}", message.data, target)
        if pending is not None:
            await pending
    sorter.close()
    return sorter.after, sorter.warnings


def seen(after: Position) -> list[Delivered]:
    def sources(message: Any) -> tuple[int, ...]:
        return tuple(int(source_id[1:]) for source_id in message.source_ids or (message.source_id,))

    return [(int(str(message.target_id)[1:]), message.data, sources(message)) for message in after.mailbox]


@given(maps_and_sends())
async def test_messages_are_delivered_as_in_the_model_and_in_send_order(
    drawn: tuple[Map, list[Sent]],
) -> None:
    where, sent = drawn
    after, _ = await route(where.routes(), sent, {})
    delivered, waiting = model(where, sent)
    assert seen(after) == delivered
    held = [sorted(data.value for sent in buffer.values() for data in sent) for buffer in after.buffers.values()]
    assert sorted(held) == sorted(sorted(data.value for _, data in entries) for entries in waiting.values())


@given(maps_and_sends(), st.integers(0, 12), st.integers(1, 99))
async def test_joins_keep_messages_over_supersteps_and_leave_old_buffers_as_is(
    drawn: tuple[Map, list[Sent]], cut: int, first_id: int
) -> None:
    where, sent = drawn
    routes = where.routes()
    whole, _ = await route(routes, sent, {}, first_id)
    first, _ = await route(routes, sent[:cut], {}, first_id)
    kept = copy.deepcopy(first.buffers)
    second, _ = await route(routes, sent[cut:], first.buffers, first.next_delivery_id)
    assert first.buffers == kept
    assert [*first.mailbox, *second.mailbox] == whole.mailbox
    assert second.buffers == whole.buffers


@given(maps_and_sends(), st.integers(1, 99))
async def test_delivery_ids_count_up_without_a_gap(drawn: tuple[Map, list[Sent]], first_id: int) -> None:
    where, sent = drawn
    after, _ = await route(where.routes(), sent, {}, first_id)
    assert [message.delivery_id for message in after.mailbox] == list(range(first_id, after.next_delivery_id))


@given(maps_and_sends())
async def test_only_messages_without_an_accepting_target_cause_a_warning(
    drawn: tuple[Map, list[Sent]],
) -> None:
    where, sent = drawn
    for message in sent:
        after, warnings = await route(where.routes(), [message], {})
        if after.mailbox:
            assert warnings == []
        elif not any(is_for(where, wire, message) for wire in where.wires):
            assert [warning.executor_id for warning in warnings] == [f"n{message.source}"]


def is_for(where: Map, wire: Wire, message: Sent) -> bool:
    """Whether the wire could have taken the message, or left it out on purpose."""
    if message.source not in wire.sources:
        return False
    aimed = [target for target in wire.targets if message.target in (None, target)]
    if wire.kind == "selection" and aimed and not set(aimed) & set(chosen(wire, message.data)):
        return True
    return any(wire.kind == "fan_in" or where.accepts(target, message.data) for target in aimed)
