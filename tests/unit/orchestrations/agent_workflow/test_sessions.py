"""Session stores keep conversations: what was said stays, and a version is always what it was."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure.agent_workflow.conversations.files import JsonSessionStore
from perdure.agent_workflow.conversations.log import SessionEntry, SessionHead
from perdure.agent_workflow.conversations.sqlite import SqliteSessionStore
from perdure.agent_workflow.conversations.store import InMemorySessionStore, SessionStore
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import Message
from perdure.errors import ConversationNotFound, InvalidRun

MAKERS: dict[str, Callable[[Path], SessionStore]] = {
    "memory": lambda folder: InMemorySessionStore(),
    "json": lambda folder: JsonSessionStore(folder / "sessions"),
    "sqlite": lambda folder: SqliteSessionStore(folder / "sessions.db"),
}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStore:
    """Every kind of store in turn, empty."""
    return MAKERS[request.param](tmp_path)


def an_entry(text: str, parent: str = "", **more: Any) -> SessionEntry:
    return SessionEntry(thread_id=more.pop("thread_id", "t"), parent=parent, messages=(Message("user", text),), **more)


def a_head(version: str, thread_id: str = "t", execution_id: str = "e") -> SessionHead:
    return SessionHead(thread_id=thread_id, execution_id=execution_id, version=version)


async def texts(store: SessionStore, version: str) -> list[str]:
    return [message.text for message in await store.messages("s", "t", version)]


async def test_a_version_is_what_was_said_up_to_it(store: SessionStore) -> None:
    one = await store.append("s", an_entry("one"))
    two = await store.append("s", an_entry("two", one))
    assert await texts(store, two) == ["one", "two"]
    assert await texts(store, one) == ["one"]
    assert await texts(store, "") == []


async def test_branches_do_not_see_each_other(store: SessionStore) -> None:
    root = await store.append("s", an_entry("root"))
    left = await store.append("s", an_entry("left", root))
    right = await store.append("s", an_entry("right", root))
    assert await texts(store, left) == ["root", "left"]
    assert await texts(store, right) == ["root", "right"]


async def test_the_same_entry_again_is_the_same_version_whenever_it_is_said(store: SessionStore) -> None:
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
async def test_another_entry_is_another_version(store: SessionStore, other: SessionEntry) -> None:
    assert await store.append("s", an_entry("one")) != await store.append("s", other)


async def test_what_is_repeated_is_said_once_more_and_stored_once(store: SessionStore) -> None:
    root = await store.append("s", an_entry("root"))
    left = await store.append("s", an_entry("left", root))
    right = await store.append("s", an_entry("right", root))
    joined = await store.append("s", SessionEntry(thread_id="t", parent=left, repeats=(right,)))
    after = await store.append("s", an_entry("after", joined))
    assert await texts(store, after) == ["root", "left", "right", "after"]
    assert list(await store.read("s", after)) == [root, left, right, joined, after]


async def test_an_entry_has_who_said_it_and_what_its_agent_keeps(store: SessionStore) -> None:
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


async def test_what_a_reader_changes_is_not_seen_by_another(store: SessionStore) -> None:
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


async def test_the_messages_of_a_thread_are_those_of_whoever_spoke_last_or_of_one_execution(
    store: SessionStore,
) -> None:
    one, two = await store.append("s", an_entry("one")), await store.append("s", an_entry("two"))
    await store.advance("s", a_head(one, execution_id="e1"))
    await store.advance("s", a_head(two, execution_id="e2"))
    assert [message.text for message in await store.messages("s", "t")] == ["two"]
    assert [message.text for message in await store.messages("s", "t", execution_id="e1")] == ["one"]
    await store.advance("s", a_head(one, execution_id="e1"))  # it is there already
    assert [message.text for message in await store.messages("s", "t")] == ["two"]
    back = await store.append("s", an_entry("three", two))
    await store.advance("s", a_head(back, execution_id="e1"))
    assert [message.text for message in await store.messages("s", "t")] == ["two", "three"]
    assert [(one.execution_id, one.version) for one in await store.heads("s")] == [("e2", two), ("e1", back)]


async def test_sessions_and_their_threads_are_listed(store: SessionStore) -> None:
    assert await store.sessions() == [] and await store.threads("s") == []
    for session_id in ("b", "a"):
        version = await store.append(session_id, an_entry("one"))
        await store.advance(session_id, a_head(version, "t"))
        await store.advance(session_id, a_head(version, "u"))
    assert await store.sessions() == ["a", "b"]
    assert await store.threads("a") == ["t", "u"]
    assert await store.messages("a", "nobody") == [] and await store.messages("nobody", "t") == []


async def test_a_deleted_session_is_gone_and_others_are_not(store: SessionStore) -> None:
    version = await store.append("s", an_entry("one"))
    await store.append("other", an_entry("two"))
    await store.delete("s")
    await store.delete("s")
    assert await store.sessions() == ["other"]
    with pytest.raises(ConversationNotFound, match=re.escape(f"no version '{version}' of session 's'")):
        await store.read("s", version)
    again = await store.append("s", an_entry("another"))
    assert await texts(store, again) == ["another"]


async def test_what_follows_nothing_that_is_known_is_refused(store: SessionStore) -> None:
    version = await store.append("other", an_entry("one"))
    for wrong in (an_entry("two", version), SessionEntry(thread_id="t", repeats=(version,))):
        with pytest.raises(ConversationNotFound, match=re.escape(f"no version '{version}' of session 's'")):
            await store.append("s", wrong)
    with pytest.raises(ConversationNotFound):
        await store.advance("s", a_head(version))
    assert await store.sessions() == ["other"]


async def test_an_entry_says_something_or_repeats_something(store: SessionStore) -> None:
    version = await store.append("s", an_entry("one"))
    both = SessionEntry(thread_id="t", messages=(Message("user", "x"),), repeats=(version,))
    for wrong in (SessionEntry(thread_id="t"), both):
        with pytest.raises(ValueError, match="either messages or repeated entries"):
            await store.append("s", wrong)


async def test_ids_of_any_form_are_told_apart(store: SessionStore, tmp_path: Path) -> None:
    ids = ["a", "A", "a/b", "a-b", "../a", "..", "con", "x" * 300, "ünïcode ✓", "a\nb", " "]
    for one in ids:
        await store.append(one, an_entry(one))
    assert await store.sessions() == sorted(ids)
    for one in ids:
        [version] = await store.read(one, await store.append(one, an_entry(one)))
        assert [message.text for message in await store.messages(one, "t", version)] == [one]
    assert {name.split(".")[0] for name in os.listdir(tmp_path)} <= {"sessions"}


async def test_a_session_needs_an_id(store: SessionStore) -> None:
    with pytest.raises(InvalidRun, match="session_id must be a non-empty string"):
        await store.append("", an_entry("one"))


def test_a_sqlite_store_in_memory_is_refused_with_what_to_use() -> None:
    with pytest.raises(ValueError, match=r"use InMemorySessionStore\(\)"):
        SqliteSessionStore(":memory:")
