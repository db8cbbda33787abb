"""Laws of `checkpoint.diff`: a checkpoint equals itself, and the changes turn one checkpoint into the other."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

from hypothesis import given, strategies as st

from perdure import WorkflowCheckpoint
from perdure.checkpoints.history.diff import Change, CheckpointDiff

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(-1, 1), st.text("ab'\"", max_size=3))
KEYS = st.text("abc'\\", min_size=1, max_size=2) | st.integers(0, 3)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=25,
)
STATES = st.dictionaries(st.text("ab", max_size=2), VALUES, max_size=4)
LAST_STEP = re.compile(r"\[(?P<key>[^\[\]]*)\]$")


def holding(state: dict[str, Any]) -> WorkflowCheckpoint:
    return WorkflowCheckpoint("w", "h", state=state)


def form(value: Any) -> str:
    """Distinguishes 1, 1.0 and True; ignores the order of keys."""
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{key!r}:{form(item)}" for key, item in value.items())) + "}"
    return "[" + ",".join(map(form, value)) + "]" if isinstance(value, list) else repr(value)


def _around(change: Change, state: dict[str, Any]) -> tuple[Any, Any]:
    """What the changed value is in, and where."""
    match = LAST_STEP.search(change.path)
    assert match is not None, change.path
    container = eval(change.path[: match.start()], {"state": state})
    return container, eval(match["key"])


def applied(diff: CheckpointDiff, state: dict[str, Any]) -> dict[str, Any]:
    """What was removed goes, the last first; what was added is put in; what changed is replaced."""
    state = deepcopy(state)
    for change in reversed(diff.removed):
        container, key = _around(change, state)
        assert form(container[key]) == form(change.old)
        del container[key]
    for change in diff.added:
        container, key = _around(change, state)
        if isinstance(container, list):
            container.insert(key, change.new)
        else:
            container[key] = change.new
    for change in diff.changed:
        container, key = _around(change, state)
        assert form(container[key]) == form(change.old)
        container[key] = change.new
    return state


@given(STATES)
def test_nothing_differs_from_itself_or_from_a_copy(state: dict[str, Any]) -> None:
    assert holding(state).diff(holding(deepcopy(state))).is_empty
    back = WorkflowCheckpoint.from_dict(json.loads(json.dumps(holding(state).to_dict())))
    assert holding(state).diff(back).is_empty


@given(STATES, STATES)
def test_changes_turn_the_old_state_into_the_new_state(old: dict[str, Any], new: dict[str, Any]) -> None:
    there, back = holding(old).diff(holding(new)), holding(new).diff(holding(old))
    assert form(applied(there, old)) == form(new)
    assert form(applied(back, new)) == form(old)
    assert there.is_empty == back.is_empty == (form(old) == form(new))


@given(st.data(), st.lists(VALUES, max_size=12))
def test_edited_list_is_described_by_its_edits(data: st.DataObject, before: list[Any]) -> None:
    """Never as more than what was done to it: an insertion is one line, however many items it moves."""
    after = deepcopy(before)
    edits = data.draw(st.integers(0, 3))
    for _ in range(edits):
        place = data.draw(st.integers(0, len(after)))
        if place < len(after) and data.draw(st.booleans()):
            del after[place]
        else:
            after.insert(place, data.draw(st.integers(100, 199)))
    diff = holding({"v": before}).diff(holding({"v": after}))
    assert form(applied(diff, {"v": before})) == form({"v": after})
    assert edits or diff.is_empty
    assert edits != 1 or len(diff) <= 1


@given(STATES, STATES)
def test_text_and_json_of_any_difference_can_be_made(old: dict[str, Any], new: dict[str, Any]) -> None:
    diff = holding(old).diff(holding(new))
    assert len(str(diff).splitlines()) == max(1, len(diff))
    json.dumps(diff.to_dict())
