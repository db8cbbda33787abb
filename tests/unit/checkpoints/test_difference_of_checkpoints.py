"""Checkpoints compared: every part of them, as text and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.unit.checkpoints.test_difference import Colour, Note, Place, holding, lines

from perdure import WorkflowCheckpoint, WorkflowEvent
from perdure.codec import Encoded
from perdure.codecs.json_codec import JsonCodec
from perdure.events import RequestTerms
from perdure.records import (
    Answer,
    ChildCheckpoint,
    Counters,
    ExecutorMemory,
    Record,
    SuspendedDelivery,
    WorkflowMessage,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def asked(deadline: datetime | None = None) -> WorkflowEvent:
    terms = RequestTerms(deadline)
    return WorkflowEvent(
        "request_info",
        Note("?"),
        request_id="r",
        source_executor_id="a",
        executor_id="a",
        response_type=str,
        terms=terms,
    )


MESSAGE = WorkflowMessage({"n": 1}, "a", "b", delivery_id=3)
STEP = Record("step", "k", "pay", value=Encoded(5, JsonCodec()), run_id="one")


@pytest.mark.parametrize(
    ("part", "old", "new", "expected"),
    [
        ("status", "IDLE", "FAILED", "~ status: 'IDLE' -> 'FAILED'"),
        ("workflow_name", "w", "x", "~ workflow_name: 'w' -> 'x'"),
        ("iteration_count", 1, 2, "~ iteration_count: 1 -> 2"),
        ("messages", {"a": [MESSAGE]}, {"a": []}, "- messages['a'][0] = WorkflowMessage("),
        (
            "messages",
            {"a": [MESSAGE]},
            {"a": [msgspec.structs.replace(MESSAGE, data={"n": 2})]},
            "~ messages['a'][0].data['n']: 1 -> 2",
        ),
        ("pending_request_info_events", {}, {"r": asked()}, "+ pending_request_info_events['r'] = WorkflowEvent("),
        (
            "pending_request_info_events",
            {"r": asked()},
            {"r": asked(NOON)},
            "~ pending_request_info_events['r'].terms.deadline: None -> datetime.datetime(",
        ),
        ("outputs", [], [WorkflowEvent.output("a", 1)], "+ outputs[0] = WorkflowEvent("),
        (
            "executors",
            {"a": ExecutorMemory({"t": 1})},
            {"a": ExecutorMemory({"t": 2})},
            "~ executors['a'].saved['t']: 1",
        ),
        ("executors", {}, {"a": ExecutorMemory(None, {"p": 1})}, "+ executors['a'] = ExecutorMemory("),
        ("buffers", {"g": {"a": [1]}}, {"g": {"a": [1, 2]}}, "+ buffers['g']['a'][1] = 2"),
        ("answered", {}, {"r": Answer(NOON, "ann")}, "+ answered['r'] = Answer("),
        ("suspended", {3: SuspendedDelivery(MESSAGE)}, {}, "- suspended[3] = SuspendedDelivery("),
        (
            "suspended",
            {3: SuspendedDelivery(MESSAGE)},
            {3: SuspendedDelivery(MESSAGE, records=(STEP,))},
            "+ suspended[3].records[0] = Record(",
        ),
        (
            "children",
            {7: ChildCheckpoint("c", MESSAGE, state={"a": 1})},
            {7: ChildCheckpoint("c", MESSAGE, state={"a": 2})},
            "~ children[7].state['a']: 1 -> 2",
        ),
        ("counters", Counters(1, 2), Counters(1, 3), "~ counters.next_delivery_id: 2 -> 3"),
        ("metadata", {}, {"m": 1}, "+ metadata['m'] = 1"),
        ("run_kwargs", {"k": 1}, {}, "- run_kwargs['k'] = 1"),
        (
            "graph_signature",
            {"nodes": {"a": "A"}},
            {"nodes": {"a": "B"}},
            "~ graph_signature['nodes']['a']: 'A' -> 'B'",
        ),
        ("graph_signature_hash", "h", "i", "~ graph_signature_hash: 'h' -> 'i'"),
        ("migrations", (), ("one",), "+ migrations[0] = 'one'"),
    ],
)
def test_every_part_of_a_checkpoint_is_compared(part: str, old: Any, new: Any, expected: str) -> None:
    made = [msgspec.structs.replace(holding(), **{part: value}) for value in (old, new)]
    difference = made[0].diff(made[1])
    assert len(difference) == 1 and str(difference).startswith(expected), str(difference)
    assert str(made[1].diff(made[1])) == "no difference"


def test_fields_that_always_differ_are_not_reported() -> None:
    waits = SuspendedDelivery(MESSAGE, records=(STEP,), run_id="one")
    later = SuspendedDelivery(MESSAGE, records=(msgspec.structs.replace(STEP, run_id="two"),), run_id="two")
    old = holding(1, thread_id="t", run_id="one", suspended={3: waits}, outputs=[WorkflowEvent.output("a", 1)])
    again = [WorkflowEvent("output", 1, executor_id="a", replayed=True, run_id="two", seq=4, timestamp=NOON)]
    counters = Counters(epoch=9)
    new = holding(1, thread_id="u", run_id="two", number=9, suspended={3: later}, outputs=again, counters=counters)
    assert old.checkpoint_id != new.checkpoint_id
    assert old.diff(new).is_empty


def test_checkpoint_does_not_differ_after_a_json_round_trip() -> None:
    made = holding(
        {"note": Note("x"), "set": {1, 2}, "place": Place(1, 2), 5: Colour.RED},
        messages={"a": [MESSAGE]},
        pending_request_info_events={"r": asked(NOON)},
        suspended={3: SuspendedDelivery(MESSAGE, NOON, ("r",), (STEP,))},
        children={3: ChildCheckpoint("c", MESSAGE, state={"n": Note("y")})},
        executors={"a": ExecutorMemory({"t": Note("z")}, {"p": 1})},
        answered={"q": Answer(NOON)},
    )
    back = WorkflowCheckpoint.from_dict(json.loads(json.dumps(made.to_dict())))
    assert str(made.diff(back)) == str(back.diff(made)) == "no difference"


# ---------------------------------------------------------------- as text and as JSON


def test_difference_can_be_written_as_json() -> None:
    old, new = holding({"a": Note("x")}), holding({"a": Note("y"), "b": NOON})
    data = old.diff(new).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["before"] == old.checkpoint_id and data["after"] == new.checkpoint_id
    assert data["changes"][0] == {"path": "state['v']['a'].text", "kind": "changed", "old": "x", "new": "y"}
    assert data["changes"][1]["kind"] == "added" and "old" not in data["changes"][1]


def test_long_values_are_shown_in_part_and_long_texts_where_they_differ() -> None:
    [line] = lines([1], [1, "x" * 1000])
    assert len(line) < 120
    [line] = lines("a" * 500 + "old end", "a" * 500 + "new end")
    assert line == "~ state['v']: ...'aaaaaaaaaaold end' -> ...'aaaaaaaaaanew end'"


@pytest.mark.parametrize("other", [None, "id", {"state": {}}])
def test_only_checkpoints_can_be_compared(other: Any) -> None:
    with pytest.raises(TypeError, match=r"expects a WorkflowCheckpoint, got .* await storage\.load"):
        holding().diff(other)
