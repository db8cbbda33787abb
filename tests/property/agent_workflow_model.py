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
        self._stand_ins = {one.id: one.fallback for one in plan.nodes if one.fallback is not None}
        self._replaced = {stand_in: node for node, stand_in in self._stand_ins.items()}
        names = [one.id for one in plan.nodes if one.id not in self._replaced]
        self._order = [one for name in names for one in (name, self._stand_ins.get(name)) if one is not None]
        forward = [one for one in plan.edges if names.index(one.source) < names.index(one.target)]
        self._back = [one for one in plan.edges if one.target in always_before(one.source, names, forward)]
        self._forward = [one for one in plan.edges if one not in self._back]
        self._now: dict[str, Became] = {}
        self._changed: set[str] = set()
        self._heard: dict[str, Any] = {}
        """What each could refer to when it ran last."""
        self._calls: Counter[str] = Counter()

    def run(self) -> Expected:
        again, forced, passes = set(self._order), list[PlannedEdge](), 1
        while True:
            self._go_through(again, forced)
            taken = [one for one in self._back if self._is_taken(one)]
            forced = [one for one in taken if not self._plan.converges or self._reached({one.target}) & self._changed]
            again = self._reached({one.target for one in forced})
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
                self._now[name] = self._became(name, before, [one for one in forced if one.target == name])
                if self._now[name] != before:
                    self._changed.add(name)

    # ------------------------------------------------------------ one node

    def _became(self, name: str, before: Became | None, forced: Sequence[PlannedEdge]) -> Became:
        into = [one for one in self._forward if one.target == name]
        taken = [one for one in into if self._is_taken(one)]
        speakers = [self._speaker(one) for one in (*forced, *taken)]
        passed_by = Became("skipped", {} if before is None else before.outputs)
        if name in self._replaced:
            speakers = [self._replaced[name]]
            if self._now[speakers[0]].status != "failed":
                return passed_by
        elif not forced and into:
            is_cut_off = any(self._now[one.source].status == "failed" and self._mode(one) == "skip" for one in into)
            if is_cut_off or not taken:
                return passed_by
        is_kept = before is not None and before.status == "done" and self._plan.converges
        heard = self._could_hear(name, speakers)
        if before is not None and is_kept and not forced and self._heard.get(name) == heard:
            return before
        self._heard[name] = heard
        return self._ran(self._plan.node(name), [self._now[one].outputs for one in dict.fromkeys(speakers)])

    def _could_hear(self, name: str, speakers: Sequence[str]) -> Any:
        """A template asks for `message`, which any node may give: so by all that was said, under the name of whoever it
        was said for."""
        all_said = {
            one: self._now[self._voice(one)].outputs
            for one in self._order
            if self._plan.node(name).has_template and one in self._now
        }
        return list(speakers), [self._now[one].outputs for one in speakers], all_said

    def _ran(self, node: PlannedNode, near: Sequence[Mapping[str, Any]]) -> Became:
        said = self._said(node, near)
        if said is None:
            return Became("failed")
        outputs = said if isinstance(said, dict) else {"message": said}
        if node.approval == "none":
            return Became("done", outputs)
        return Became("done", {**outputs, **STAMP}) if is_granted(node, outputs) else Became("skipped")

    def _said(self, node: PlannedNode, near: Sequence[Mapping[str, Any]]) -> Any:
        """None: it failed."""
        if node.kind == "map":
            items = [reply_of(node, item) for item in self._plan.input["items"]]
            self._calls[node.id] += len(items)
            if node.map_errors == "fail" and None in items:
                return None
            return items if node.map_errors != "omit" else [one for one in items if one is not None]
        self._calls[node.id] += 1
        message = next((_text(one["message"]) for one in near if "message" in one), None)
        heard = _text(self._plan.input) if message is None else message
        return reply_of(node, f"{self._plan.input['topic']} by {heard}" if node.has_template else heard)

    # ------------------------------------------------------------ edges

    def _mode(self, edge: PlannedEdge) -> str:
        return self._plan.node(edge.source).mode

    def _speaker(self, edge: PlannedEdge) -> str:
        """Whose word it is: a fallback's, where the source has failed."""
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
            others = [one for one in self._plan.edges if one.source == edge.source and not one.is_default]
            return not any(_holds(one, speaker.outputs) for one in others)
        return _holds(edge, speaker.outputs)

    def _reached(self, targets: set[str]) -> set[str]:
        found = set(targets)
        for name in self._order:
            sources = [one.source for one in self._forward if one.target == name]
            sources += [self._stand_ins[one] for one in sources if one in self._stand_ins]
            if found & {*sources, self._replaced.get(name)}:
                found.add(name)
        return found

    # ------------------------------------------------------------ the end

    def _ended(self, passes: int, left_by: Literal["itself", "limit", "convergence"]) -> Expected:
        gave = {one.id: self._now[one.id] for one in self._plan.nodes if self._now[one.id].outputs}
        answers = [_answer(self._plan.node(name), one.outputs) for name, one in gave.items() if self._is_last(name)]
        return Expected(
            {name: one.status for name, one in self._now.items()},
            len(gave),
            {f"{name}.{key}": value for name, one in gave.items() for key, value in one.outputs.items()},
            "\n\n".join(one for one in answers if one) or None,
            not list(self._failed()),
            self._calls,
            passes,
            left_by,
        )

    def _failed(self) -> Iterator[str]:
        for name, one in self._now.items():
            stand_in = self._stand_ins.get(name)
            if one.status == "failed" and (stand_in is None or self._now[stand_in].status != "done"):
                yield name

    def _is_last(self, name: str) -> bool:
        source = self._replaced.get(name, name)
        return self._now[name].status == "done" and not any(
            self._is_taken(one) for one in self._forward if one.source == source
        )


def _holds(edge: PlannedEdge, outputs: Mapping[str, Any]) -> bool:
    return edge.grades is None or outputs.get("grade") in edge.grades


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _answer(node: PlannedNode, outputs: Mapping[str, Any]) -> str:
    if node.kind == "graded":
        return _text(outputs)
    said = outputs["message"]
    return "\n\n".join(said) if isinstance(said, list) and None not in said else _text(said)
