"""Each message is delivered exactly where a straightforward reading of the graph says, in the order of the sends."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from hypothesis import given, strategies as st
from tests.property.engine_graphs import Wire, add_wire, wirings

from perdure import Executor, WorkflowBuilder, WorkflowContext, handler
from perdure.engine.thread.compiled import Buffers, Routes, Sorter


@dataclass(frozen=True)
class Letter:
    value: int


@dataclass(frozen=True)
class Parcel:
    value: int


class TakesAll(Executor):
    @handler
    async def one(self, sent: Letter | Parcel, ctx: WorkflowContext[Letter | Parcel]) -> None: ...

    @handler
    async def many(self, sent: list[Letter | Parcel], ctx: WorkflowContext[Letter | Parcel]) -> None: ...


class TakesLetters(Executor):
    @handler
    async def one(self, sent: Letter, ctx: WorkflowContext[Letter | Parcel]) -> None: ...

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
        return not (self.only_letters[place] and any(isinstance(one, Parcel) for one in sent))


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
    """Joins hear from their senders again and again, so that they hold several messages of one."""
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
        return [one for place, one in enumerate(wire.targets) if (data.value + wire.step) >> place & 1]
    if wire.kind == "switch":
        taken = [one for place, one in enumerate(wire.targets[:-1]) if data.value % wire.step == place % wire.step]
        return [*taken, wire.targets[-1]][:1]
    return list(wire.targets)


def model(where: Map, sent: list[Sent]) -> tuple[list[Delivered], dict[int, list[tuple[int, Any]]]]:
    """What is delivered, in order; and what each join (by the place of its wire) still holds."""
    delivered: list[Delivered] = []
    waiting: dict[int, list[tuple[int, Any]]] = {}
    for one in sent:
        for number, wire in enumerate(where.wires):
            if one.source not in wire.sources:
                continue
            if wire.kind == "fan_in":
                if one.target in (None, wire.targets[0]):
                    delivered += _join(where, number, waiting.setdefault(number, []), one)
                continue
            for target in chosen(wire, one.data):
                if one.target in (None, target) and where.accepts(target, one.data):
                    delivered.append((target, one.data, (one.source,)))
    return delivered, {number: held for number, held in waiting.items() if held}


def _join(where: Map, number: int, held: list[tuple[int, Any]], one: Sent) -> list[Delivered]:
    wire = where.wires[number]
    held.append((one.source, one.data))
    if {source for source, _ in held} != set(wire.sources):
        return []
    together = [data for place in wire.sources for source, data in held if source == place]
    held.clear()
    return [(wire.targets[0], together, wire.sources)] if where.accepts(wire.targets[0], *together) else []


# ---------------------------------------------------------------- the laws


async def route(routes: Routes, sent: list[Sent], buffers: Buffers, first_id: int = 1) -> Sorter:
    """As a superstep does it: the short way for a lone plain edge, and the general one otherwise."""
    sorter = Sorter(buffers, first_id)
    for one in sent:
        target = None if one.target is None else f"n{one.target}"
        if not routes.send_now(sorter, f"n{one.source}", one.data, target):
            await routes.send(sorter, f"n{one.source}", one.data, target)
    return sorter


def seen(sorter: Sorter) -> list[Delivered]:
    def sources(message: Any) -> tuple[int, ...]:
        return tuple(int(one[1:]) for one in message.source_ids or (message.source_id,))

    return [(int(str(one.target_id)[1:]), one.data, sources(one)) for one in sorter.mailbox]


@given(maps_and_sends())
async def test_every_message_goes_where_the_model_says_and_in_the_order_of_the_sends(
    drawn: tuple[Map, list[Sent]],
) -> None:
    where, sent = drawn
    sorter = await route(where.routes(), sent, {})
    delivered, waiting = model(where, sent)
    assert seen(sorter) == delivered
    held = [sorted(data.value for sent in one.values() for data in sent) for one in sorter.buffers.values()]
    assert sorted(held) == sorted(sorted(data.value for _, data in one) for one in waiting.values())


@given(maps_and_sends())
async def test_the_general_way_delivers_what_the_short_way_does(drawn: tuple[Map, list[Sent]]) -> None:
    where, sent = drawn
    routes, general = where.routes(), Sorter({}, 1)
    for one in sent:
        await routes.send(general, f"n{one.source}", one.data, None if one.target is None else f"n{one.target}")
    short = await route(routes, sent, {})
    assert general.mailbox == short.mailbox
    assert general.buffers == short.buffers


@given(maps_and_sends(), st.integers(0, 12), st.integers(1, 99))
async def test_joins_hold_over_supersteps_what_they_got_and_the_buffers_before_stay_as_they_were(
    drawn: tuple[Map, list[Sent]], cut: int, first_id: int
) -> None:
    where, sent = drawn
    routes = where.routes()
    whole = await route(routes, sent, {}, first_id)
    first = await route(routes, sent[:cut], {}, first_id)
    kept = copy.deepcopy(first.buffers)
    second = await route(routes, sent[cut:], first.buffers, first.next_delivery_id)
    assert first.buffers == kept
    assert [*first.mailbox, *second.mailbox] == whole.mailbox
    assert second.buffers == whole.buffers


@given(maps_and_sends(), st.integers(1, 99))
async def test_delivery_ids_count_up_without_a_gap(drawn: tuple[Map, list[Sent]], first_id: int) -> None:
    where, sent = drawn
    sorter = await route(where.routes(), sent, {}, first_id)
    assert [one.delivery_id for one in sorter.mailbox] == list(range(first_id, sorter.next_delivery_id))


@given(maps_and_sends())
async def test_a_message_that_nobody_there_accepts_is_warned_about_and_a_delivered_one_is_not(
    drawn: tuple[Map, list[Sent]],
) -> None:
    where, sent = drawn
    for one in sent:
        sorter = await route(where.routes(), [one], {})
        if sorter.mailbox:
            assert sorter.warnings == []
        elif not any(is_for(where, wire, one) for wire in where.wires):
            assert [warning.executor_id for warning in sorter.warnings] == [f"n{one.source}"]


def is_for(where: Map, wire: Wire, one: Sent) -> bool:
    """Whether the wire could have taken the message, or left it out on purpose."""
    if one.source not in wire.sources:
        return False
    aimed = [target for target in wire.targets if one.target in (None, target)]
    if wire.kind == "selection" and aimed and not set(aimed) & set(chosen(wire, one.data)):
        return True
    return any(wire.kind == "fan_in" or where.accepts(target, one.data) for target in aimed)
