"""Session stores keep conversations: messages stay, and a version never changes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent_workflow.session_places import KINDS, open_sessions

from perdure.agent_workflow import sessions as session
from perdure.agent_workflow.sessions import PREFIX, SessionEntry, SessionHead, SqliteSessionStore, StorageSessionStore
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.checkpoints.checkpoint import WorkflowCheckpoint
from perdure.checkpoints.encode import tool_codec
from perdure.errors import ConversationNotFound, InvalidRun, ThreadExists


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StorageSessionStore]:
    """Every kind of store in turn, empty."""
    async with open_sessions(request.param, tmp_path) as opened:
        yield opened


def an_entry(text: str, parent: str = "", **more: Any) -> SessionEntry:
    return SessionEntry(thread_id=more.pop("thread_id", "t"), parent=parent, messages=(Message("user", text),), **more)


def a_head(version: str, thread_id: str = "t", execution_id: str = "e") -> SessionHead:
    return SessionHead(thread_id=thread_id, execution_id=execution_id, version=version)


async def texts(store: StorageSessionStore, version: str) -> list[str]:
    return [message.text for message in await store.messages("s", "t", version)]


async def test_version_contains_all_messages_up_to_it(store: StorageSessionStore) -> None:
    first = await store.append("s", an_entry("one"))
    second = await store.append("s", an_entry("two", first))
    assert await texts(store, second) == ["one", "two"]
    assert await texts(store, first) == ["one"]
    assert await texts(store, "") == []


async def test_branches_do_not_see_each_other(store: StorageSessionStore) -> None:
    root = await store.append("s", an_entry("root"))
    left = await store.append("s", an_entry("left", root))
    right = await store.append("s", an_entry("right", root))
    assert await texts(store, left) == ["root", "left"]
    assert await texts(store, right) == ["root", "right"]


async def test_same_entry_gets_the_same_version_at_any_time(store: StorageSessionStore) -> None:
    first = await store.append("s", an_entry("one", at=datetime(2026, 3, 1, tzinfo=UTC)))
    again = await store.append("s", an_entry("one", at=datetime(2026, 3, 2, tzinfo=UTC)))
    assert first == again
    assert (await store.read("s", first))[first].at == datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "other",
    [
        an_entry("two"),
        an_entry("one", thread_id="u"),
        an_entry("one", node_id="n"),
        an_entry("one", execution_id="f"),
        an_entry("one", state={"seen": 1}),
    ],
)
async def test_another_entry_is_another_version(store: StorageSessionStore, other: SessionEntry) -> None:
    assert await store.append("s", an_entry("one")) != await store.append("s", other)


async def test_repeated_entries_are_part_of_the_thread_and_stored_once(store: StorageSessionStore) -> None:
    root = await store.append("s", an_entry("root"))
    left = await store.append("s", an_entry("left", root))
    right = await store.append("s", an_entry("right", root))
    joined = await store.append("s", SessionEntry(thread_id="t", parent=left, repeats=(right,)))
    after = await store.append("s", an_entry("after", joined))
    assert await texts(store, after) == ["root", "left", "right", "after"]
    assert list(await store.read("s", after)) == [root, left, right, joined, after]


async def test_entry_stores_author_origin_and_agent_state(store: StorageSessionStore) -> None:
    whole = SessionEntry(
        thread_id="t",
        messages=(
            Message("user", "Hello ✓\n", author_name="ann", additional_properties={"seen": (1, b"x")}),
            Message("tool", [Content.from_function_result("c", result={"degrees": 12.5})]),
        ),
        workflow_name="W",
        execution_id="e",
        node_id="n",
        at=datetime(2026, 3, 1, tzinfo=UTC),
        state={"memory": [1, (2, 3)]},
    )
    version = await store.append("s", whole)
    assert await store.read("s", version) == {version: whole}


async def test_changes_by_a_reader_are_invisible_to_other_readers(store: StorageSessionStore) -> None:
    entry = SessionEntry(
        thread_id="t", messages=(Message("user", "x", additional_properties={"a": 1}),), state={"b": 2}
    )
    version = await store.append("s", entry)
    assert entry.messages[0].additional_properties is not None
    entry.messages[0].additional_properties["a"] = 3
    read = (await store.read("s", version))[version]
    assert read.messages[0].additional_properties == {"a": 1}
    read.state["b"] = 3
    assert (await store.read("s", version))[version].state == {"b": 2}


async def test_thread_messages_are_of_the_last_speaker_or_of_one_execution(
    store: StorageSessionStore,
) -> None:
    first, second = await store.append("s", an_entry("one")), await store.append("s", an_entry("two"))
    await store.advance("s", a_head(first, execution_id="e1"))
    await store.advance("s", a_head(second, execution_id="e2"))
    assert [message.text for message in await store.messages("s", "t")] == ["two"]
    assert [message.text for message in await store.messages("s", "t", execution_id="e1")] == ["one"]
    await store.advance("s", a_head(first, execution_id="e1"))  # it is there already
    assert [message.text for message in await store.messages("s", "t")] == ["two"]
    back = await store.append("s", an_entry("three", second))
    await store.advance("s", a_head(back, execution_id="e1"))
    assert [message.text for message in await store.messages("s", "t")] == ["two", "three"]
    assert [(head.execution_id, head.version) for head in await store.heads("s")] == [("e2", second), ("e1", back)]


async def test_sessions_and_their_threads_are_listed(store: StorageSessionStore) -> None:
    assert await store.sessions() == [] and await store.threads("s") == []
    for session_id in ("b", "a"):
        version = await store.append(session_id, an_entry("one"))
        await store.advance(session_id, a_head(version, "t"))
        await store.advance(session_id, a_head(version, "u"))
    assert await store.sessions() == ["a", "b"]
    assert await store.threads("a") == ["t", "u"]
    assert await store.messages("a", "nobody") == [] and await store.messages("nobody", "t") == []


async def test_a_deleted_session_is_gone_and_others_are_not(store: StorageSessionStore) -> None:
    version = await store.append("s", an_entry("one"))
    await store.append("other", an_entry("two"))
    await store.delete("s")
    await store.delete("s")
    assert await store.sessions() == ["other"]
    with pytest.raises(ConversationNotFound, match=re.escape(f"no version '{version}' of session 's'")):
        await store.read("s", version)
    again = await store.append("s", an_entry("another"))
    assert await texts(store, again) == ["another"]


async def test_reference_to_an_unknown_version_is_rejected(store: StorageSessionStore) -> None:
    version = await store.append("other", an_entry("one"))
    for wrong in (an_entry("two", version), SessionEntry(thread_id="t", repeats=(version,))):
        with pytest.raises(ConversationNotFound, match=re.escape(f"no version '{version}' of session 's'")):
            await store.append("s", wrong)
    with pytest.raises(ConversationNotFound):
        await store.advance("s", a_head(version))
    assert await store.sessions() == ["other"]


async def test_entry_has_either_messages_or_repeats(store: StorageSessionStore) -> None:
    version = await store.append("s", an_entry("one"))
    both = SessionEntry(thread_id="t", messages=(Message("user", "x"),), repeats=(version,))
    for wrong in (SessionEntry(thread_id="t"), both):
        with pytest.raises(ValueError, match="either messages or repeated entries"):
            await store.append("s", wrong)


async def test_ids_of_any_form_are_distinct(store: StorageSessionStore) -> None:
    ids = ["a", "A", "a/b", "a-b", "../a", "..", "con", "x" * 300, "ünïcode ✓", "a\nb", " "]
    for session_id in ids:
        await store.append(session_id, an_entry(session_id))
    assert await store.sessions() == sorted(ids)
    for session_id in ids:
        [version] = await store.read(session_id, await store.append(session_id, an_entry(session_id)))
        assert [message.text for message in await store.messages(session_id, "t", version)] == [session_id]


async def test_a_session_needs_an_id(store: StorageSessionStore) -> None:
    with pytest.raises(InvalidRun, match="session_id must be a non-empty string"):
        await store.append("", an_entry("one"))


def test_sqlite_store_in_memory_is_rejected_with_an_alternative() -> None:
    with pytest.raises(ValueError, match=r"use InMemorySessionStore\(\)"):
        SqliteSessionStore(":memory:")


async def test_session_is_listed_and_exported_like_any_thread(store: StorageSessionStore, tmp_path: Path) -> None:
    version = await store.append("s", an_entry("one"))
    [thread] = await store.storage.list_threads()
    assert (thread.thread_id, thread.status) == ("conversation:s", "IDLE")
    await store.storage.export_thread("conversation:s", tmp_path / "s.jsonl")
    async with open_sessions("sqlite", tmp_path / "elsewhere") as elsewhere:
        await elsewhere.storage.import_thread(tmp_path / "s.jsonl")
        assert await texts(elsewhere, version) == ["one"]


async def test_foreign_thread_with_the_id_of_a_session_is_left_alone(store: StorageSessionStore) -> None:
    await store.storage.save(WorkflowCheckpoint("other", "", thread_id=f"{PREFIX}s", state={"log": [1]}))
    assert await store.sessions() == [] and await store.heads("s") == []
    await store.delete("s")
    with pytest.raises(ThreadExists, match="it is a thread of workflow 'other'"):
        await store.append("s", an_entry("one"))
    assert [thread.workflow_name for thread in await store.storage.list_threads()] == ["other"]


def test_session_store_over_a_foreign_storage_is_rejected() -> None:
    with pytest.raises(InvalidRun, match="A session store needs a storage of perdure"):
        StorageSessionStore(object())  # type: ignore[arg-type]  # what people try


async def test_session_keeps_its_stored_form_and_its_ids(store: StorageSessionStore) -> None:
    messages = (Message("user", "Hello"), Message("assistant", "Hi", author_name="a"))
    entry = SessionEntry(thread_id="t", messages=messages, execution_id="e", node_id="a", state={"seen": 1})
    version = await store.append("s", entry)
    await store.advance("s", a_head(version))
    head = await store.storage.get_latest(thread_id="conversation:s")
    assert head is not None and head.workflow_name == "perdure.conversations"
    assert tool_codec().encode(head.state, "state") == {
        "format": 1,
        "key": "",
        "log.0": [
            [
                "hO7+T39a7iMJacHpoc5O5A",
                {
                    "$type": "perdure:SessionEntry",
                    "thread_id": "t",
                    "messages": {
                        "$type": "tuple",
                        "items": [
                            {"$type": "perdure:Message", "$value": ["user", ["Hello"]]},
                            {"$type": "perdure:Message", "$value": ["assistant", ["Hi"], "a"]},
                        ],
                    },
                    "execution_id": "e",
                    "node_id": "a",
                    "state": {"seen": 1},
                },
            ],
            {"$type": "perdure:SessionHead", "thread_id": "t", "execution_id": "e", "version": version},
        ],
    }


async def test_long_session_is_read_in_order_by_another_object(
    store: StorageSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PART", 4)
    versions = [""]
    for number in range(11):
        versions.append(await store.append("s", an_entry(str(number), versions[-1])))
        again = StorageSessionStore(store.storage)
        assert list(await again.read("s", versions[-1])) == versions[1:]
        assert await again.append("s", an_entry(str(number), versions[-2])) == versions[-1]
    head = await store.storage.get_latest(thread_id="conversation:s")
    assert head is not None
    assert [len(part) for key, part in head.state.items() if key.startswith("log.")] == [4, 4, 3]
