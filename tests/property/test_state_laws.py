"""Laws of the shared state within one superstep, checked against a model that a reader can follow."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st

from perdure.codecs import JsonCodec
from perdure.engine.thread.state import DELETED, LaneState, merge_state
from perdure.errors import StateConflict
from perdure.graph.policy import Reducer, add, append, merge

REDUCERS: dict[str, Reducer] = {"notes": append, "total": add, "index": merge}
PLAIN = ("a", "b", "items")

NUMBERS = st.integers(-9, 9)
LISTS = st.lists(NUMBERS, max_size=3)
BEFORE = st.fixed_dictionaries(
    {},
    optional={
        "a": NUMBERS,
        "b": NUMBERS,
        "items": LISTS,
        "notes": LISTS,
        "total": NUMBERS,
        "index": st.dictionaries(NUMBERS, LISTS, max_size=2),
    },
)


@dataclass(frozen=True)
class Act:
    """One thing that an executor does to the state."""

    kind: str
    key: str
    value: Any = None


ACTS = st.one_of(
    st.builds(Act, st.just("set"), st.sampled_from(PLAIN), NUMBERS | LISTS),
    st.builds(Act, st.just("delete"), st.sampled_from((*PLAIN, *REDUCERS))),
    st.builds(Act, st.just("read"), st.sampled_from((*PLAIN, *REDUCERS))),
    st.builds(Act, st.just("change"), st.sampled_from(("items", "notes")), NUMBERS),
    st.builds(Act, st.just("change and undo"), st.just("items"), NUMBERS),
    st.builds(Act, st.just("set"), st.just("notes"), NUMBERS),
    st.builds(Act, st.just("set"), st.just("total"), NUMBERS),
    st.builds(Act, st.just("set"), st.just("index"), st.dictionaries(NUMBERS, LISTS, max_size=2)),
)
SCRIPTS = st.lists(st.lists(ACTS, max_size=4), min_size=1, max_size=4)
CODECS = st.sampled_from((None, JsonCodec()))


def act(lane: LaneState, action: Act) -> None:
    if action.kind == "set":
        lane.write(action.key, copy.deepcopy(action.value))
    elif action.kind == "delete":
        lane.write(action.key, DELETED)
    else:
        value = lane.get(action.key)
        if action.kind != "read" and isinstance(value, list):
            value.append(action.value)
            if action.kind == "change and undo":
                value.pop()


def lanes_of(
    before: dict[str, Any], scripts: list[list[Act]], turns: Iterable[int] = ()
) -> list[tuple[str, LaneState]]:
    """Let executors act, interleaved in the order of `turns` and then one after the other."""
    lanes = [(f"n{place}", LaneState(before, REDUCERS)) for place in range(len(scripts))]
    left = [list(script) for script in scripts]
    for turn in (*turns, *(place for place, script in enumerate(scripts) for _ in script)):
        place = turn % len(scripts)
        if left[place]:
            act(lanes[place][1], left[place].pop(0))
    return lanes


def merged(before: dict[str, Any], lanes: list[tuple[str, LaneState]], codec: Any = None) -> dict[str, Any] | str:
    """The state after, or the key in conflict."""
    try:
        return merge_state(before, lanes, REDUCERS, codec)
    except StateConflict as conflict:
        return f"conflict on {conflict.key}"


# ---------------------------------------------------------------- the model


def alone(before: dict[str, Any], script: list[Act]) -> dict[str, Any]:
    """What the state would be if this executor were the only one: plain Python on a copy."""
    state = copy.deepcopy(before)
    for action in script:
        if action.kind == "delete":
            state.pop(action.key, None)
        elif action.kind == "set" and action.key in REDUCERS and action.key in state:
            state[action.key] = REDUCERS[action.key](state[action.key], copy.deepcopy(action.value))
        elif action.kind == "set":
            state[action.key] = [action.value] if action.key == "notes" else copy.deepcopy(action.value)
        elif action.kind == "change" and isinstance(state.get(action.key), list):
            state[action.key].append(action.value)
    return state


def took_effect(before: dict[str, Any], script: list[Act]) -> list[Act]:
    """Without changes of a list that this executor did not see: a sibling's write is not there to be changed."""
    return [
        action
        for place, action in enumerate(script)
        if action.kind != "change" or isinstance(alone(before, script[:place]).get(action.key), list)
    ]


@given(BEFORE, st.lists(ACTS, max_size=6), CODECS)
def test_an_executor_alone_leaves_what_plain_python_would_leave(
    before: dict[str, Any], script: list[Act], codec: Any
) -> None:
    assert merged(before, lanes_of(before, [script]), codec) == alone(before, script)


@given(BEFORE, st.lists(ACTS, max_size=6))
def test_an_executor_reads_its_own_writes_as_plain_python_would(before: dict[str, Any], script: list[Act]) -> None:
    lane = LaneState(before, REDUCERS)
    for place, action in enumerate(script):
        act(lane, action)
        seen = {key: copy.deepcopy(lane.get(key)) for key in lane.keys()}  # noqa: SIM118 - not a mapping
        assert seen == alone(before, script[: place + 1])


@given(BEFORE, SCRIPTS, st.lists(st.integers(0, 3), max_size=12), CODECS)
def test_the_order_in_which_siblings_act_does_not_matter(
    before: dict[str, Any], scripts: list[list[Act]], turns: list[int], codec: Any
) -> None:
    in_turn = merged(before, lanes_of(before, scripts), codec)
    assert merged(before, lanes_of(before, scripts, turns), codec) == in_turn


@given(BEFORE, SCRIPTS, CODECS)
def test_merging_keeps_the_state_before_and_shares_no_live_object(
    before: dict[str, Any], scripts: list[list[Act]], codec: Any
) -> None:
    kept = copy.deepcopy(before)
    lanes = lanes_of(before, scripts)
    first = merged(before, lanes, codec)
    assert before == kept
    was = copy.deepcopy(first)
    for _, lane in lanes:
        for key in ("items", "notes"):
            if isinstance(value := lane.get(key), list):
                value.append("a handler that still holds it")
    assert before == kept
    assert first == was


@given(BEFORE, SCRIPTS, CODECS)
def test_a_sibling_never_sees_what_another_does(before: dict[str, Any], scripts: list[list[Act]], codec: Any) -> None:
    lanes = lanes_of(before, [*scripts, []])
    last = lanes[-1][1]
    assert {key: last.get(key) for key in last.keys()} == before  # noqa: SIM118 - not a mapping


def touches(before: dict[str, Any], script: list[Act]) -> dict[str, bool]:
    """Keys that a script writes; True if each of its writes joins with those of others."""
    touched: dict[str, bool] = {}
    for place, action in enumerate(script):
        if action.kind == "set":
            touched[action.key] = action.key in REDUCERS and touched.get(action.key, True)
        elif action.kind == "delete" or (
            action.kind == "change" and isinstance(alone(before, script[:place]).get(action.key), list)
        ):
            touched[action.key] = False
    return touched


@given(BEFORE, SCRIPTS, CODECS)
def test_two_writers_of_one_key_conflict_unless_a_reducer_joins_them(
    before: dict[str, Any], scripts: list[list[Act]], codec: Any
) -> None:
    seen: dict[str, bool] = {}
    clashes = set()
    for script in scripts:
        mine = touches(before, script)
        clashes |= {key for key in mine if key in seen and not (mine[key] and seen[key])}
        seen |= {key: joins and seen.get(key, True) for key, joins in mine.items()}
    if clashes:
        with pytest.raises(StateConflict) as caught:
            merge_state(before, lanes_of(before, scripts), REDUCERS, codec)
        assert caught.value.key in clashes
    else:
        merge_state(before, lanes_of(before, scripts), REDUCERS, codec)


@given(BEFORE, SCRIPTS, CODECS)
def test_without_a_conflict_siblings_leave_the_sum_of_what_each_did(
    before: dict[str, Any], scripts: list[list[Act]], codec: Any
) -> None:
    after = merged(before, lanes_of(before, scripts), codec)
    if isinstance(after, str):
        return
    expected = copy.deepcopy(before)
    for script in scripts:
        expected = alone(
            expected, [action for action in took_effect(before, script) if action.key in touches(before, script)]
        )
    assert after == expected
