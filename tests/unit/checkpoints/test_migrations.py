"""Migrations: what is pending, what is stored with a checkpoint, and that nothing else is touched."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests.parsing import parse

from perdure import UnreadableValue
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.encode import encode_graph
from perdure.checkpoints.migration.migrations import Migration, Migrations, Migrator, restore_type_names
from perdure.checkpoints.migration.stored_form import StoredForm, StoredWaiting
from perdure.codecs.json_codec import JsonCodec
from perdure.graph.validation import signature_hash
from perdure.records import CheckpointInfo

INFO = CheckpointInfo("c1", "t", "flow", 1, 0, None, "2026-01-01T00:00:00+00:00")
SIGNATURE = {"start": "a", "executors": {"a": "m:A"}, "edges": []}


def rename_both(stored: StoredForm) -> None:
    stored.rename_executor("a", "b")
    stored.rename_type("m:Ticket", "m:Case")


def count(stored: StoredForm) -> None:
    stored.state["count"] = stored.state.get("count", 0) + 1


def migrator(*steps: Any, force: bool = False) -> Migrator:
    return Migrator(Migrations(steps), "flow", {}, signature_hash, force=force)


def tree_of(migrations: list[str] | None = None, **parts: Any) -> dict[str, Any]:
    graph = {"version": "1.0", "graph_signature_hash": signature_hash(SIGNATURE), "graph_signature": SIGNATURE}
    return {"counters": [0, 1], "graph": graph if migrations is None else {**graph, "migrations": migrations}, **parts}


def migrated(tree: Any, *steps: Any, waiting: Any = (), force: bool = False) -> Any:
    return migrator(*steps, force=force).migrate(tree, INFO, JsonCodec(), waiting)


# ---------------------------------------------------------------- what is applied


def test_tree_with_all_migrations_applied_is_returned_unchanged() -> None:
    for tree, steps in ((tree_of(), []), (tree_of(["count"]), [count])):
        assert migrated(tree, *steps) is tree


def test_migration_leaves_the_input_tree_unchanged() -> None:
    tree = tree_of(state={"deep": {"list": [{"$type": "m:Ticket"}]}})
    before = repr(tree)
    after = migrated(tree, rename_both, count)
    assert repr(tree) == before
    assert after["graph"]["migrations"] == ["rename_both", "count"]
    assert after["graph"]["renamed_types"] == [("rename_both", "m:Ticket", "m:Case")]
    assert after["graph"]["graph_signature_hash"] == signature_hash(after["graph"]["graph_signature"])


def test_migration_changes_a_shared_object_in_one_place_only() -> None:
    """Chunks that occur twice are read once, so a tree may hold one object twice."""
    shared = {"n": 1}

    def change(stored: StoredForm) -> None:
        stored.state["one"]["n"] = 2

    after = migrated(tree_of(state={"one": shared, "two": shared}), change)
    assert JsonCodec().decode(after["state"], "state") == {"one": {"n": 2}, "two": {"n": 1}}


def test_waiting_entries_get_the_migrations_that_they_lack() -> None:
    seen: list[Any] = []

    def look(stored: StoredForm) -> None:
        seen.append([entry.tree for entry in stored._waiting])

    steps = [Migration(name, look) for name in ("one", "two", "three")]
    waiting = [StoredWaiting("old", None), StoredWaiting("newer", "two"), StoredWaiting("newest", "three")]
    migrated(tree_of(), *steps, waiting=waiting)
    assert seen == [["old"], ["old"], ["old", "newer"]]
    assert [entry.migrated for entry in waiting] == ["three"] * 3


def test_waiting_entries_older_than_the_head_get_its_renamed_types() -> None:
    tree = tree_of(["rename_both"])
    tree["graph"]["renamed_types"] = [["rename_both", "m:Ticket", "m:Case"]]
    waiting = [StoredWaiting({"$type": "m:Ticket"}, None), StoredWaiting({"$type": "m:Ticket"}, "rename_both")]
    migrated(tree, rename_both, count, waiting=waiting)
    assert [entry.tree for entry in waiting] == [{"$type": "m:Case"}, {"$type": "m:Ticket"}]


def test_digests_use_the_original_type_names() -> None:
    renamed = [("one", "m:A", "m:B"), ("two", "m:B", "m:C")]
    tree = [{"$type": "m:C", "of": {"$type": "type", "name": "m:C.Inner"}}, "m:C"]
    assert restore_type_names(tree, renamed) == [{"$type": "m:A", "of": {"$type": "type", "name": "m:A.Inner"}}, "m:C"]


# ---------------------------------------------------------------- what is stored


def test_checkpoint_without_migrations_keeps_its_stored_form() -> None:
    plain = WorkflowCheckpoint("flow", "hash")
    assert encode_graph(plain) == b'{"version":"1.0","graph_signature_hash":"hash"}'
    assert "migrations" not in plain.to_dict()


def test_names_and_renamed_types_come_back_with_a_checkpoint() -> None:
    made = WorkflowCheckpoint("flow", "h", migrations=("one",), renamed_types=(("one", "m:A", "m:B"),))
    again = WorkflowCheckpoint.from_dict(made.to_dict())
    assert (again.migrations, again.renamed_types) == (made.migrations, made.renamed_types)


@pytest.mark.parametrize(
    "part", [{"migrations": "one"}, {"migrations": [1]}, {"renamed_types": [["one"]]}, {"renamed_types": {}}]
)
def test_unreadable_migration_names_raise(part: dict[str, Any]) -> None:
    tree = tree_of()
    tree["graph"].update(part)
    with pytest.raises(UnreadableValue, match="migrations"):
        migrated(tree, count)


# ---------------------------------------------------------------- how long one is


def test_a_renamed_executor_and_a_renamed_type_are_three_lines() -> None:
    assert len(inspect.getsource(rename_both).splitlines()) == 3


def test_the_migrations_that_the_page_shows_are_three_lines_long() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "workflows" / "change-a-workflow.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    shown = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for block in blocks
        for node in ast.walk(parse(block))
        if isinstance(node, ast.FunctionDef) and "stored" in ast.unparse(node.args)
    }
    renames = {name: lines for name, lines in shown.items() if name.startswith("rename")}
    assert len(renames) >= 2
    assert max(renames.values()) <= 3, shown
