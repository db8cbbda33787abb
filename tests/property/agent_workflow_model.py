"""What a planned workflow must come to, worked out one node after the other: no engine, no tasks, no storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from tests.property.agent_workflow_driving import STAMP
from tests.property.agent_workflow_plans import Plan, PlannedEdge, PlannedNode, always_before, is_granted, reply_of


@dataclass(frozen=True)
class Became:
    """Of a node, in a pass."""

    status: Literal["done", "skipped", "failed"]
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """What it gave; of a node that an earlier pass came to and this one did not, what it gave then."""


@dataclass(frozen=True)
class Expected:
    nodes: dict[str, str]
    """Statuses."""
    succeeded: int
    """Nodes that have given something, in whichever pass."""
    outputs: dict[str, Any]
    final_answer: str | None
    success: bool
    calls: Counter[str]
    """Of models, by node."""
    passes: int
    left_by: Literal["itself", "limit", "convergence"]


def expected_of(plan: Plan) -> Expected:
    return _Model(plan).run()


class _Model:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stand_ins = {node.id: node.fallback for node in plan.nodes if node.fallback is not None}
        self._replaced = {stand_in: node for node, stand_in in self._stand_ins.items()}
        names = [node.id for node in plan.nodes if node.id not in self._replaced]
        self._order = [
            node_id for name in names for node_id in (name, self._stand_ins.get(name)) if node_id is not None
        ]
        forward = [edge for edge in plan.edges if names.index(edge.source) < names.index(edge.target)]
        self._back = [edge for edge in plan.edges if edge.target in always_before(edge.source, names, forward)]
        self._forward = [edge for edge in plan.edges if edge not in self._back]
        self._now: dict[str, Became] = {}
        self._changed: set[str] = set()
        self._inputs: dict[str, Any] = {}
        """What each could refer to when it ran last."""
        self._calls: Counter[str] = Counter()

    def run(self) -> Expected:
        again, forced, passes = set(self._order), list[PlannedEdge](), 1
        while True:
            self._go_through(again, forced)
            taken = [edge for edge in self._back if self._is_taken(edge)]
            forced = [
                edge for edge in taken if not self._plan.converges or self._reached({edge.target}) & self._changed
            ]
            again = self._reached({edge.target for edge in forced})
            if not taken:
                return self._ended(passes, "itself")
            if not forced:
                return self._ended(passes, "convergence")
            if passes == self._plan.passes:
                return self._ended(passes, "limit")
            passes += 1

    def _go_through(self, again: set[str], forced: Sequence[PlannedEdge]) -> None:
        self._changed = set()
        for name in self._order:
            if name in again:
                before = self._now.get(name)
                self._now[name] = self._became(name, before, [edge for edge in forced if edge.target == name])
                if self._now[name] != before:
                    self._changed.add(name)

    # ------------------------------------------------------------ one node

    def _became(self, name: str, before: Became | None, forced: Sequence[PlannedEdge]) -> Became:
        into = [edge for edge in self._forward if edge.target == name]
        taken = [edge for edge in into if self._is_taken(edge)]
        speakers = [self._speaker(edge) for edge in (*forced, *taken)]
        passed_by = Became("skipped", {} if before is None else before.outputs)
        if name in self._replaced:
            speakers = [self._replaced[name]]
            if self._now[speakers[0]].status != "failed":
                return passed_by
        elif not forced and into:
            is_cut_off = any(self._now[edge.source].status == "failed" and self._mode(edge) == "skip" for edge in into)
            if is_cut_off or not taken:
                return passed_by
        is_kept = before is not None and before.status == "done" and self._plan.converges
        inputs = self._visible_inputs(name, speakers)
        if before is not None and is_kept and not forced and self._inputs.get(name) == inputs:
            return before
        self._inputs[name] = inputs
        return self._ran(self._plan.node(name), [self._now[speaker].outputs for speaker in dict.fromkeys(speakers)])

    def _visible_inputs(self, name: str, speakers: Sequence[str]) -> Any:
        """Returns what the input of the node is made of. A template asks for `message`, which any node may give: so all
        outputs count, each under the name of the node that it stands for."""
        all_outputs = {
            node_id: self._now[self._voice(node_id)].outputs
            for node_id in self._order
            if self._plan.node(name).has_template and node_id in self._now
        }
        return list(speakers), [self._now[speaker].outputs for speaker in speakers], all_outputs

    def _ran(self, node: PlannedNode, near: Sequence[Mapping[str, Any]]) -> Became:
        reply = self._reply_to(node, near)
        if reply is None:
            return Became("failed")
        outputs = reply if isinstance(reply, dict) else {"message": reply}
        if node.approval == "none":
            return Became("done", outputs)
        return Became("done", {**outputs, **STAMP}) if is_granted(node, outputs) else Became("skipped")

    def _reply_to(self, node: PlannedNode, near: Sequence[Mapping[str, Any]]) -> Any:
        """None: it failed."""
        if node.kind == "map":
            items = [reply_of(node, item) for item in self._plan.input["items"]]
            self._calls[node.id] += len(items)
            if node.map_errors == "fail" and None in items:
                return None
            return items if node.map_errors != "omit" else [item for item in items if item is not None]
        self._calls[node.id] += 1
        message = next((_text(outputs["message"]) for outputs in near if "message" in outputs), None)
        text = _text(self._plan.input) if message is None else message
        return reply_of(node, f"{self._plan.input['topic']} by {text}" if node.has_template else text)

    # ------------------------------------------------------------ edges

    def _mode(self, edge: PlannedEdge) -> str:
        return self._plan.node(edge.source).mode

    def _speaker(self, edge: PlannedEdge) -> str:
        """The node whose outputs count: a fallback, where the source has failed."""
        return self._voice(edge.source)

    def _voice(self, name: str) -> str:
        stand_in = self._stand_ins.get(name)
        has_failed = stand_in in self._now and self._now[name].status == "failed"
        return stand_in if stand_in is not None and has_failed else name

    def _is_taken(self, edge: PlannedEdge) -> bool:
        speaker = self._now[self._speaker(edge)]
        if speaker.status != "done":
            return False
        if edge.is_default:
            others = [other for other in self._plan.edges if other.source == edge.source and not other.is_default]
            return not any(_holds(other, speaker.outputs) for other in others)
        return _holds(edge, speaker.outputs)

    def _reached(self, targets: set[str]) -> set[str]:
        reached = set(targets)
        for name in self._order:
            sources = [edge.source for edge in self._forward if edge.target == name]
            sources += [self._stand_ins[source] for source in sources if source in self._stand_ins]
            if reached & {*sources, self._replaced.get(name)}:
                reached.add(name)
        return reached

    # ------------------------------------------------------------ the end

    def _ended(self, passes: int, left_by: Literal["itself", "limit", "convergence"]) -> Expected:
        gave = {node.id: self._now[node.id] for node in self._plan.nodes if self._now[node.id].outputs}
        answers = [
            _answer(self._plan.node(name), result.outputs) for name, result in gave.items() if self._is_last(name)
        ]
        return Expected(
            {name: result.status for name, result in self._now.items()},
            len(gave),
            {f"{name}.{key}": value for name, result in gave.items() for key, value in result.outputs.items()},
            "\n\n".join(answer for answer in answers if answer) or None,
            not list(self._failed()),
            self._calls,
            passes,
            left_by,
        )

    def _failed(self) -> Iterator[str]:
        for name, result in self._now.items():
            stand_in = self._stand_ins.get(name)
            if result.status == "failed" and (stand_in is None or self._now[stand_in].status != "done"):
                yield name

    def _is_last(self, name: str) -> bool:
        source = self._replaced.get(name, name)
        return self._now[name].status == "done" and not any(
            self._is_taken(edge) for edge in self._forward if edge.source == source
        )


def _holds(edge: PlannedEdge, outputs: Mapping[str, Any]) -> bool:
    return edge.grades is None or outputs.get("grade") in edge.grades


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _answer(node: PlannedNode, outputs: Mapping[str, Any]) -> str:
    if node.kind == "graded":
        return _text(outputs)
    message = outputs["message"]
    return "\n\n".join(message) if isinstance(message, list) and None not in message else _text(message)
