"""A compiled graph: its routes, its codec and its migrations. All runs share it, and none changes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from functools import cached_property, partial
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.encode import codec_for, declare_types, encode_graph
from perdure.checkpoints.migration.migrations import AnyMigration, Migrations, Migrator
from perdure.codec import Codec
from perdure.engine.thread.position import Position
from perdure.errors import InvalidSelection, type_name
from perdure.events import WorkflowErrorDetails, WorkflowEvent
from perdure.graph.edges import (
    Edge,
    FanInEdgeGroup,
    FanOutEdgeGroup,
    SwitchCaseEdgeGroup,
    SwitchCaseEdgeGroupDefault,
)
from perdure.graph.graph import Graph, SubWorkflowRequestMessage, WorkflowExecutor
from perdure.graph.validation import graph_signature, signature_hash
from perdure.isolation import isolate
from perdure.records import WorkflowMessage


class Sorter(msgspec.Struct, eq=False):
    """Sorts the messages of one superstep into the mailbox of the next position, in the order they were sent."""

    after: Position
    warnings: list[WorkflowEvent] = []
    _held: dict[str, dict[str, list[Any]]] = {}
    """Copies of the buffers that this superstep fills: those of the position before do not change."""

    def deliver(self, data: Any, source_id: str, target_id: str, source_ids: tuple[str, ...] | None = None) -> None:
        after = self.after
        delivery_id = after.next_delivery_id
        message = WorkflowMessage(data, source_id, target_id, source_ids=source_ids, delivery_id=delivery_id)
        after.mailbox.append(message)
        after.next_delivery_id = delivery_id + 1

    def pass_on(self, message: WorkflowMessage, target_id: str, in_place_of: str) -> None:
        """Deliver the same message to another executor."""
        after = self.after
        delivery_id = after.next_delivery_id
        after.mailbox.append(replace(message, target_id=target_id, delivery_id=delivery_id, in_place_of=in_place_of))
        after.next_delivery_id = delivery_id + 1

    def held_messages(self, group_id: str) -> dict[str, list[Any]]:
        """Messages of a fan-in so far, by sender. The caller adds to it, and clears it after the join."""
        held = self._held.get(group_id)
        if held is None:
            before = self.after.buffers.get(group_id, {})
            held = self._held[group_id] = {sender: list(sent) for sender, sent in before.items()}
        return held

    def close(self) -> None:
        """Give the position the buffers as they are now."""
        if self._held:
            after = self.after
            after.buffers = {key: held for key, held in {**after.buffers, **self._held}.items() if held}


Way = Callable[["Sorter", Any, "str | None"], bool]
"""Sends a message along one edge group. True if the group applies to it, even if a condition stopped it."""
AsyncWay = Callable[["Sorter", Any, "str | None"], Coroutine[Any, Any, bool]]
"""The same for groups with predicates, which may await."""


class Routes:
    """The edges of a graph, arranged by sender."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ways: dict[str, list[Way | AsyncWay]] = {executor_id: [] for executor_id in graph.nodes}
        self._joins: dict[str, list[_Join]] = {}
        for group in graph.edge_groups:
            join = _Join(graph, group) if isinstance(group, FanInEdgeGroup) else None
            for source_id in group.source_executor_ids:
                way: Way | AsyncWay
                if join is not None:
                    way = _fan_in(join, source_id)
                    self._joins.setdefault(source_id, []).append(join)
                elif isinstance(group, SwitchCaseEdgeGroup):
                    way = _switch(graph, group, source_id)
                elif isinstance(group, FanOutEdgeGroup):
                    way = _fan_out(graph, group, source_id)
                else:
                    way = _single(graph, group.edges[0])
                self._ways[source_id].append(way)

    def has_edges(self, executor_id: str) -> bool:
        return bool(self._ways[executor_id])

    def send(
        self, sorter: Sorter, source_id: str, data: Any, target_id: str | None
    ) -> Coroutine[Any, Any, None] | None:
        """Send a message along the sender's edges. Adds a warning if no edge applies. Returns what is left to await, if
        an edge has a condition: a coroutine for each message costs 0.1 us of a superstep's 9."""
        has_edge = False
        ways = iter(self._ways[source_id])
        for way in ways:
            answer = way(sorter, data, target_id)
            if answer is True:
                has_edge = True
            elif answer is not False:
                return self._send_along(ways, answer, has_edge, (sorter, source_id, data, target_id))
        if not has_edge:
            self._warn(sorter, source_id, data, target_id)
        return None

    async def _send_along(
        self,
        ways: Iterator[Way | AsyncWay],
        pending: Coroutine[Any, Any, bool],
        has_edge: bool,
        sent: tuple[Sorter, str, Any, str | None],
    ) -> None:
        """Await the condition of one edge, then send along the others."""
        sorter, source_id, data, target_id = sent
        has_edge |= await pending
        for way in ways:
            answer = way(sorter, data, target_id)
            has_edge |= answer if isinstance(answer, bool) else await answer
        if not has_edge:
            self._warn(sorter, source_id, data, target_id)

    def go_without(self, sorter: Sorter, source_id: str) -> None:
        """Let fan-ins that wait for this sender join the messages of the others, if there are any."""
        for join in self._joins.get(source_id, ()):
            held = sorter.held_messages(join.group_id)
            held.setdefault(source_id, [])
            join.deliver_if_complete(sorter, held)

    def _warn(self, sorter: Sorter, source_id: str, data: Any, target_id: str | None) -> None:
        if self._graph.executors[source_id].may_end_here:
            return
        what = f"The message of type {type_name(type(data))} that {source_id!r} sent"
        if target_id is not None:
            text = f"{what} to {target_id!r} was not delivered: no edge leads there, or it does not accept the type."
            remedy = f"add_edge({source_id}, {target_id})"
        elif not self._ways[source_id]:
            text = f"{what} was not delivered: {source_id!r} has no outgoing edge."
            remedy = f"add_edge({source_id}, {source_id}) to send it to itself, or add_edge({source_id}, ...)"
        else:
            text = f"{what} was not delivered: none of its targets accepts the type."
            remedy = f"add a handler for it to a target, or add_edge({source_id}, {source_id})"
        if isinstance(data, SubWorkflowRequestMessage):
            remedy = f"a handler for it in an executor after {source_id!r}, or WorkflowExecutor(propagate_request=True)"
        sorter.warnings.append(WorkflowEvent("warning", f"{text} Remedy: {remedy}.", executor_id=source_id))


def _single(graph: Graph, edge: Edge) -> Way | AsyncWay:
    source_id, target = edge.source_id, edge.target_id
    table = graph.executors[target].table

    def plain(sorter: Sorter, data: Any, target_id: str | None) -> bool:
        if (target_id is not None and target_id != target) or table.find(data) is None:
            return False
        sorter.deliver(data, source_id, target)
        return True

    async def conditional(sorter: Sorter, data: Any, target_id: str | None) -> bool:
        if (target_id is not None and target_id != target) or table.find(data) is None:
            return False
        if await edge.should_route(isolate(data)):
            sorter.deliver(data, source_id, target)
        return True

    return conditional if edge.has_condition else plain


def _fan_out(graph: Graph, group: FanOutEdgeGroup, source_id: str) -> Way | AsyncWay:
    targets = group.target_executor_ids
    tables = {target: graph.executors[target].table for target in targets}

    def take(sorter: Sorter, data: Any, target_id: str | None, chosen: list[str] = targets) -> bool:
        if target_id is not None:
            if target_id not in tables:
                return False
            chosen = [target_id] if target_id in chosen else []
        accepted = [target for target in chosen if tables[target].find(data) is not None]
        for target in accepted:
            sorter.deliver(data, source_id, target)
        return bool(accepted) or not chosen

    async def take_selected(sorter: Sorter, data: Any, target_id: str | None) -> bool:
        return take(sorter, data, target_id, await _select(group, data, targets))

    return take if group.selection_func is None else take_selected


async def _select(group: FanOutEdgeGroup, data: Any, targets: list[str]) -> list[str]:
    answer: Any = targets if group.selection_func is None else group.selection_func(isolate(data), list(targets))
    if isinstance(answer, Awaitable):
        answer = await answer
    who = f"The selection function {group.selection_func_name!r} of {group.source_executor_ids[0]!r}"
    if not isinstance(answer, list | tuple | set | frozenset):
        raise InvalidSelection(
            f"{who} returned {answer!r}, expected a list of executor ids. The superstep was discarded."
        )
    chosen = list(dict.fromkeys(answer))
    unknown = [target for target in chosen if target not in targets]
    if unknown:
        raise InvalidSelection(
            f"Invalid selection result: {who} chose {unknown[0]!r}, which is not one of its targets: "
            f"{', '.join(map(repr, targets))}. The superstep was discarded."
        )
    return chosen


def _switch(graph: Graph, group: SwitchCaseEdgeGroup, source_id: str) -> AsyncWay:
    targets = frozenset(group.target_executor_ids)

    async def take(sorter: Sorter, data: Any, target_id: str | None) -> bool:
        if target_id is not None and target_id not in targets:
            return False
        chosen = await _case(group, sorter, source_id, data)
        if target_id is not None and target_id != chosen:
            # The switch stops it, as a condition does.
            return graph.executors[target_id].table.find(data) is not None
        if graph.executors[chosen].table.find(data) is None:
            return False
        sorter.deliver(data, source_id, chosen)
        return True

    return take


async def _case(group: SwitchCaseEdgeGroup, sorter: Sorter, source_id: str, data: Any) -> str:
    for case in group.cases:
        if isinstance(case, SwitchCaseEdgeGroupDefault):
            return case.target_id
        try:
            answer: Any = case.condition(isolate(data))
            if await answer if isinstance(answer, Awaitable) else answer:
                return case.target_id
        except Exception as error:  # noqa: BLE001  # a user's predicate may raise anything; the warning has it
            text = (
                f"The case {case.condition_name!r} of {source_id!r} raised {type(error).__name__} and counts as false."
            )
            details = WorkflowErrorDetails.from_exception(error, executor_id=source_id)
            sorter.warnings.append(WorkflowEvent("warning", text, executor_id=source_id, details=details))
    return group.cases[-1].target_id


class _Join:
    """A fan-in, prepared once: every message of every sender passes it."""

    def __init__(self, graph: Graph, group: FanInEdgeGroup) -> None:
        self.group_id = group.id
        self.sources = tuple(group.source_executor_ids)
        self.target = group.target_executor_ids[0]
        self._table = graph.executors[self.target].table

    def deliver_if_complete(self, sorter: Sorter, held: dict[str, list[Any]]) -> None:
        if len(held) < len(self.sources):
            return
        present = tuple(source for source in self.sources if held[source])
        joined = [message for source in present for message in held[source]]
        held.clear()
        if joined and self._table.find(joined) is not None:
            sorter.deliver(joined, self.group_id, self.target, present)
        elif joined:
            kinds = ", ".join(sorted({type_name(type(message)) for message in joined}))
            text = (
                f"The list of {kinds} joined for {self.target!r} was not delivered: it has no handler for such a list."
            )
            warning = WorkflowEvent("warning", f"{text} Remedy: a handler for list[...].", executor_id=self.target)
            sorter.warnings.append(warning)


def _fan_in(join: _Join, source_id: str) -> Way:
    group_id, target = join.group_id, join.target

    def take(sorter: Sorter, data: Any, target_id: str | None) -> bool:
        if target_id is not None and target_id != target:
            return False
        held = sorter.held_messages(group_id)
        held.setdefault(source_id, []).append(data)
        join.deliver_if_complete(sorter, held)
        return True

    return take


class Compiled:
    def __init__(
        self, graph: Graph, allowed_types: Iterable[type | str] = (), migrations: Iterable[AnyMigration] = ()
    ) -> None:
        self.graph = graph
        self.migrations = Migrations(migrations)
        self.routes = Routes(graph)
        self.signature = graph_signature(graph)
        self.signature_hash = signature_hash(self.signature)
        self.hooked = {executor_id: None for executor_id, executor in graph.executors.items() if executor.saves_state}
        """Executors that have checkpoint hooks."""
        self.children = {
            executor_id: Compiled(executor.graph, getattr(executor.workflow, "allowed_types", ()))
            for executor_id, executor in graph.executors.items()
            if isinstance(executor, WorkflowExecutor)
        }
        self.migrator = partial(Migrator, self.migrations, graph.name, self.signature, signature_hash)
        """Makes the migrator of one run, which adapts stored data of its thread to this graph."""
        self.has_hooks: bool = bool(self.hooked) or any(child.has_hooks for child in self.children.values())
        """Here or in any sub-workflow."""
        codes = (executor.code for executor in graph.executors.values())
        self.declared = declare_types(graph.annotations, codes, allowed_types)
        for child in self.children.values():
            self.declared = self.declared.union(child.declared)
        names = self.migrations.names
        self.encoded_graph = encode_graph(
            WorkflowCheckpoint(graph.name, self.signature_hash, graph_signature=self.signature, migrations=names)
        )
        """The common part of all checkpoints of the workflow, as they store it."""

    @cached_property
    def codec(self) -> Codec:
        """The codec for digests in runs without a storage."""
        return codec_for(self.declared)
