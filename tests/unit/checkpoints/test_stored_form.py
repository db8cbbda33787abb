"""StoredForm: a rename changes every occurrence of a name, and nothing that only looks like the name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Case, Default, Executor, WorkflowBuilder, WorkflowContext, WorkflowExecutor, handler
from perdure.checkpoints.migration.stored_form import StoredForm, StoredWaiting
from perdure.codecs.json_codec import JsonCodec
from perdure.graph.validation import graph_signature
from perdure.records import CheckpointInfo

INFO = CheckpointInfo("c1", "t", "flow", 1, 0, None, "2026-01-01T00:00:00+00:00")


@dataclass
class Note:
    text: str


def form(signature: dict[str, Any] | None = None, waiting: Any = (), today: Any = None, **parts: Any) -> StoredForm:
    known = {"start": "a", "executors": {"a": "m:A", "b": "m:B", "c": "m:C"}, "edges": []}
    tree = {"counters": [0, 9], "graph": {"graph_signature": known if signature is None else signature}, **parts}
    return StoredForm(tree, INFO, waiting, today or {}, JsonCodec(lenient=True))


# ---------------------------------------------------------------- signatures


class Any_(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[str, str]) -> None: ...

    @handler
    async def take_all(self, messages: list[str], ctx: WorkflowContext[str, str]) -> None: ...


def is_long(message: Any) -> bool:
    return len(message) > 3


def choose(message: Any, targets: list[str]) -> list[str]:
    return targets


def every_kind_of_edge(name: str, inner: str = "inner") -> dict[str, Any]:
    """The signature of a graph in which one executor has this name, and stands at every kind of edge."""
    first, second, third, fourth = Any_(name), Any_("a"), Any_("ab"), Any_("a->b if c")
    child = WorkflowExecutor(WorkflowBuilder(name="child", start_executor=Any_(inner)).build(), "child")
    graph = (
        WorkflowBuilder(name="flow", start_executor=first)
        .add_edge(first, first)
        .add_edge(first, second, condition=is_long)
        .add_edge(fourth, first, condition=is_long)
        .add_fan_out_edges(second, [first, third])
        .add_multi_selection_edge_group(third, [first, second], choose)
        .add_fan_in_edges([third, fourth], child)
        .add_switch_case_edge_group(first, [Case(is_long, fourth), Default(child)])
        .add_fan_in_edges([second, first], Any_("join"))
        .graph()
    )
    return graph_signature(graph)


def test_a_renamed_executor_gives_the_signature_of_the_renamed_graph() -> None:
    for old, new in (("x", "y"), ("x", "aaa"), ("b", "a->b"), ("a b", "if")):
        changed = form(every_kind_of_edge(old))
        changed.rename_executor(old, new)
        assert changed.signature == every_kind_of_edge(new)


@pytest.mark.parametrize("new", ["other", "child/other"])
def test_an_executor_of_a_sub_workflow_is_named_by_its_path(new: str) -> None:
    changed = form(every_kind_of_edge("x"))
    changed.rename_executor("child/inner", new)
    assert changed.signature == every_kind_of_edge("x", "other")


def test_renamed_executor_takes_the_code_name_of_the_current_graph() -> None:
    """A function that is renamed has another code name, too."""
    today = {"executors": {"z": "m:Z"}, "children": {}}
    changed = form(today=today)
    changed.rename_executor("a", "z")
    changed.rename_executor("b", "not_there_today")
    assert changed.signature["executors"] == {"z": "m:Z", "not_there_today": "m:B", "c": "m:C"}
    assert changed.signature["start"] == "z"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("aa", "z", r"no executor 'aa' \(did you mean 'a'\?\)"),
        ("a/b", "z", "no executor 'a/b'"),
        ("a", "b", "'a' cannot become 'b': the graph has such an executor already"),
        ("a", "", "an id is not empty"),
    ],
)
def test_unknown_or_taken_name_is_rejected(old: str, new: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        form().rename_executor(old, new)


# ---------------------------------------------------------------- executors


def test_only_whole_names_are_renamed() -> None:
    signature = {"start": "a", "executors": {"a": "m:A", "ab": "m:B", "a/b": "m:C"}, "edges": []}
    sent = {"a": [[1, "ab", 0]], "internal:a": [[2, "a", 0]], "ab": [[3, "a/b", 0]], "FanInEdgeGroup/ab,a->a/b": []}
    changed = form(
        signature,
        messages=sent,
        payloads=["a"],
        buffers={"FanInEdgeGroup/a,ab->a": {"a": ["a"], "ab": []}, "FanInEdgeGroup/ab,a/b->ab": {}},
        state={"a": "a"},
        outputs=[["output", "a", "a"], ["output", "a/b", "a"]],
    )
    changed.rename_executor("a", "z")
    assert changed.tree["messages"] == {
        "z": [[1, "ab", 0]],
        "internal:z": [[2, "z", 0]],
        "ab": [[3, "a/b", 0]],
        "FanInEdgeGroup/ab,z->a/b": [],
    }
    assert changed.decode(changed.tree["buffers"]) == {
        "FanInEdgeGroup/z,ab->z": {"z": ["a"], "ab": []},
        "FanInEdgeGroup/ab,a/b->ab": {},
    }
    assert changed.tree["payloads"] == ["a"]
    assert changed.state == {"a": "a"}
    assert changed.tree["outputs"] == [["output", "z", "a"], ["output", "a/b", "a"]]


def test_waiting_entries_are_renamed_where_their_delivery_is_due() -> None:
    effects = {"sends": [["a", "a"]], "requests": [], "outputs": [], "writes": [], "saved": None, "forwarded_to": "a"}
    waiting = [StoredWaiting(dict(effects), None, 1), StoredWaiting(dict(effects), None, 77), StoredWaiting("a", None)]
    changed = form(waiting=waiting, messages={"b": [[1, "a", 0]]}, payloads=["x"])
    changed.rename_executor("a", "z")
    assert waiting[0].tree["sends"] == [["a", "z"]]
    assert waiting[0].tree["forwarded_to"] == "z"
    assert waiting[1].tree == effects  # its delivery is not due, so no executor takes it
    assert waiting[2].tree == "a"


def question(asker: str) -> dict[str, Any]:
    """A question of a sub-workflow, as a message."""
    event = {"$type": "perdure:WorkflowEvent", "executor_id": asker, "source_executor_id": asker}
    kind = "perdure:SubWorkflowRequestMessage"
    return {"$type": kind, "source_event": event, "executor_id": "child"}


def request(asker: str) -> dict[str, Any]:
    return {"request_id": "q", "source_executor_id": asker, "child_id": 1}


def effects(asker: str) -> dict[str, Any]:
    return {"sends": [[question(asker), asker]], "requests": [request(asker)], "answers": [["yes", request(asker)]]}


def with_a_child(name: str, inner: str) -> dict[str, Any]:
    """A level with a sub-workflow, in which both have an executor called `x`; in the child it never changes."""
    asker = f"child/{inner}"
    return {
        "messages": {name: [[2, name, 0, [name, "a"], request(asker), name]]},
        "payloads": [question(asker)],
        "state": {"asked": question(asker)},
        "suspended": [
            {
                "delivery": [name, [3, name, 0], question(asker)],
                "records": [{"kind": "step", "effects": effects(asker)}],
            }
        ],
        "requests": [request(asker)],
        "children": [
            {
                "executor_id": "child",
                "delivery": [name, [1, "child", 0], question(asker)],
                "messages": {"x": [[4, "x", 0, None, request(inner)]]},
                "payloads": [question("x")],
                "requests": [request(inner)],
                "executors": {inner: {}, "x": {}},
                "suspended": [{"delivery": ["x", [5, inner, 0], "m"], "records": [{"kind": "step"}]}],
            }
        ],
    }


def test_executor_is_renamed_everywhere_in_its_level_and_the_levels_above() -> None:
    changed = form(
        every_kind_of_edge("x"), [StoredWaiting(effects("child/inner"), None, 2)], **with_a_child("x", "inner")
    )
    changed.rename_executor("x", "y")
    changed.rename_executor("child/inner", "other")
    changed.values("nothing")  # settles it
    wanted = with_a_child("y", "other")
    assert {part: changed.tree[part] for part in wanted} == wanted
    assert changed._waiting[0].tree == effects("child/other")


# ---------------------------------------------------------------- types


def test_type_is_renamed_with_its_inner_types_and_nothing_else() -> None:
    state = {
        "value": {"$type": "m:A", "text": "m:A"},
        "inner": [{"$type": "m:A.Part", "of": {"$type": "m:A[int]"}}],
        "others": [
            {"$type": "m:AB"},
            {"$type": "m:Colour", "name": "m:A"},
            {"$type": "dict", "items": [["$type", "m:A"]]},
        ],
        "asked": {"$type": "union", "args": [{"$type": "type", "name": "m:A"}, {"$type": "type", "name": "str"}]},
    }
    changed = form(state=state)
    changed.rename_type("m:A", "n:B")
    assert changed.state == {
        "value": {"$type": "n:B", "text": "m:A"},
        "inner": [{"$type": "n:B.Part", "of": {"$type": "n:B[int]"}}],
        "others": state["others"],
        "asked": {"$type": "union", "args": [{"$type": "type", "name": "n:B"}, {"$type": "type", "name": "str"}]},
    }
    assert changed.signature["executors"]["a"] == "n:B"


def test_rename_type_accepts_a_class_in_place_of_its_name() -> None:
    changed = form(state={"one": {"$type": "m:Old", "text": "x"}})
    changed.rename_type("m:Old", Note)
    [note] = changed.values(Note)
    note["text"] = "y"
    assert changed.decode(changed.state["one"]) == Note("y")
    assert changed.encode(Note("y")) == changed.state["one"]


def test_values_that_are_nested_deeply_are_reached() -> None:
    deep: Any = {"$type": "m:Old"}
    for _ in range(5000):
        deep = [deep]
    changed = form(state={"deep": deep})
    changed.rename_type("m:Old", "m:New")
    assert len(changed.values("m:New")) == 1


# ---------------------------------------------------------------- steps


def test_step_is_renamed_in_the_keys_of_steps_inside_and_after_it() -> None:
    digest = "0123456789abcdef"
    records = [
        {"kind": "step", "key": f"act {digest}", "name": "act"},
        {"kind": "step", "key": f"act {digest} #2", "name": "act", "after": f"act {digest}"},
        {"kind": "step", "key": f"other = act in act {digest}", "name": "other", "within": f"act {digest}"},
        {"kind": "answered", "key": "request act", "name": "request", "after": "acts = 1"},
    ]
    journal = StoredWaiting({"kind": "step", "key": "act = 7", "name": "act", "n": 4}, None, 1)
    changed = form(
        suspended=[{"delivery": ["b", [1, "a", 0], "x"], "records": records}],
        waiting=[journal, StoredWaiting("act", None)],
    )
    changed.rename_step("act", "do")
    assert [(record["key"], record["name"]) for record in records] == [
        (f"do {digest}", "do"),
        (f"do {digest} #2", "do"),
        (f"other = act in do {digest}", "other"),
        ("request act", "request"),
    ]
    assert records[1]["after"] == records[2]["within"] == f"do {digest}"
    assert records[3]["after"] == "acts = 1"
    assert journal.tree == {"kind": "step", "key": "do = 7", "name": "do", "n": 4}


# ---------------------------------------------------------------- state and memories


def test_state_is_a_dict_for_any_keys() -> None:
    codec = JsonCodec()
    for state in ({}, {"x": 1}, {"$x": 1, "y": (2, 3)}):
        changed = form(state=codec.encode(state, "state"))
        assert list(changed.state) == list(state)
        changed.state["new"] = changed.encode({"$deep": (1,)})
        changed.values("tuple")  # settles it
        assert changed.decode(changed.tree["state"]) == {**state, "new": {"$deep": (1,)}}


def test_state_and_memories_of_sub_workflows_are_reached() -> None:
    signature = every_kind_of_edge("x")
    child = {"executor_id": "child", "delivery": ["x", [1, "child", 0], "m"], "state": {"n": 1}}
    other = {"executor_id": "else", "delivery": ["x", [2, "else", 0], "m"], "state": {"n": 1}}
    changed = form(signature, children=[child, other])
    for level in changed.children("child"):
        level.state["n"] += 1
        level.memory("inner")["private"] = {"seen": True}
    changed.rename_executor("child/inner", "outer")
    assert changed.decode(child["state"]) == {"n": 2}
    assert child["executors"] == {"outer": {"private": {"seen": True}}}
    assert other["state"] == {"n": 1}


def test_pickled_state_cannot_be_rewritten() -> None:
    with pytest.raises(ValueError, match="not stored as JSON"):
        form(state={"$pickle": "gASVBwAAAAAAAAB9lIwBYZRLAXMu"}).state["x"]


# ---------------------------------------------------------------- executors that are gone


def test_dropped_executor_is_removed_with_all_its_deliveries() -> None:
    signature = every_kind_of_edge("x")
    request = {"request_id": "q", "source_executor_id": "child/inner", "child_id": 1}
    changed = form(
        signature,
        messages={"x": [[1, "child", 0], [2, "a", 0]]},
        payloads=["m"],
        suspended=[{"delivery": ["x", [3, "child", 0], "m"]}, {"delivery": ["x", [4, "ab", 0], "m"]}],
        children=[{"executor_id": "child", "delivery": ["x", [1, "child", 0], "m"]}],
        requests=[request, {**request, "source_executor_id": "a"}],
        executors={"child": {"private": {}}, "a": {"private": {}}},
        buffers={"FanInEdgeGroup/ab,a->b if c->child": {"ab": ["m"]}},
    )
    changed.drop_executor("child")
    tree = changed.tree
    assert tree["messages"] == {"x": [[2, "a", 0]]}
    assert [entry["delivery"][1][0] for entry in tree["suspended"]] == [4]
    assert (tree["children"], list(tree["executors"])) == ([], ["a"])
    assert [entry["source_executor_id"] for entry in tree["requests"]] == ["a"]
    assert changed.decode(tree["buffers"]) == {}
    assert "child" not in str(changed.signature)


def test_an_executor_that_others_need_is_not_dropped() -> None:
    with pytest.raises(ValueError, match="'a' is the start executor"):
        form().drop_executor("a")
    with pytest.raises(ValueError, match="a fan-in that waits for 'b' holds messages of others"):
        form(buffers={"FanInEdgeGroup/a,b->c": {"a": ["m"]}}).drop_executor("b")
