"""Session stores with a key: without it, no message can be read, guessed or moved."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.orchestrations.agent_workflow.making import RecordingAgent, drafted

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.conversations.files import JsonSessionStore, file_name
from perdure.agent_workflow.conversations.log import (
    EntryLine,
    Line,
    SessionEntry,
    SessionHead,
    from_bytes,
    line_of,
    to_bytes,
    with_id,
)
from perdure.agent_workflow.conversations.sqlite import SqliteSessionStore
from perdure.agent_workflow.conversations.store import InMemorySessionStore, LoggedSessionStore
from perdure.agents.conversation.message import Message
from perdure.codecs.aes_gcm import AesGcm
from perdure.digests import digest_of
from perdure.errors import DamagedStore, InvalidDefinition, MissingKey, PlaintextRefused
from perdure.storages import FileCheckpointStorage, InMemoryCheckpointStorage

OLD, NEW = AesGcm({"old": bytes(32)}), AesGcm({"new": b"n" * 32, "old": bytes(32)}, current="new")
OTHER = AesGcm({"other": b"o" * 32})
SECRET, KEPT = "the launch code is 0000", "its agent keeps this"


class Place:
    """A folder or a file with sessions, and the lines in it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.path = folder / "sessions"

    def store(self, encryption: AesGcm | None = OLD) -> LoggedSessionStore:
        make: Any = {"json": JsonSessionStore, "sqlite": SqliteSessionStore}[self.kind]
        made: LoggedSessionStore = make(self.path, encryption=encryption)
        return made

    def lines(self, session_id: str) -> list[bytes]:
        if self.kind == "json":
            return (self.path / file_name(session_id)).read_bytes().splitlines(keepends=True)
        with closing(sqlite3.connect(self.path)) as db:
            rows = db.execute("SELECT line FROM session_lines WHERE session_id = ? ORDER BY number", (session_id,))
            return [line for (line,) in rows]

    def write(self, session_id: str, lines: list[bytes]) -> None:
        if self.kind == "json":
            (self.path / file_name(session_id)).write_bytes(b"".join(lines))
            return
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("DELETE FROM session_lines WHERE session_id = ?", (session_id,))
            rows = [(session_id, line) for line in lines]
            db.executemany("INSERT INTO session_lines (session_id, line) VALUES (?, ?)", rows)

    def line(self, session_id: str, number: int) -> Any:
        return from_bytes(self.lines(session_id)[number], "here")

    def put(self, session_id: str, number: int, line: Line) -> None:
        lines = self.lines(session_id)
        self.write(session_id, [*lines[:number], to_bytes(line), *lines[number + 1 :]])

    def everything(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture(params=["json", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def an_entry(text: str, parent: str = "", **more: Any) -> SessionEntry:
    return SessionEntry(thread_id="t", parent=parent, messages=(Message("user", text),), **more)


async def texts(store: LoggedSessionStore, version: str, session_id: str = "s") -> list[str]:
    return [message.text for message in await store.messages(session_id, "t", version)]


# ---------------------------------------------------------------- what is stored


async def test_messages_and_state_are_readable_only_with_the_key(place: Place) -> None:
    store = place.store()
    first = await store.append("s", an_entry(SECRET, node_id="n", state={"memory": KEPT}))
    second = await store.append("s", an_entry("and more", first))
    joined = await store.append("s", SessionEntry(thread_id="t", parent=second, repeats=(first,)))
    await store.advance("s", SessionHead(thread_id="t", execution_id="e", version=joined))
    for reader in (store, place.store()):
        entries = await reader.read("s", joined)
        assert entries[first] == an_entry(SECRET, node_id="n", state={"memory": KEPT})
        assert [message.text for message in await reader.messages("s", "t")] == [SECRET, "and more"]
        assert await reader.sessions() == ["s"]
    stored = place.everything()
    assert b'"node_id":"n"' in stored  # ids are in clear
    for text in (SECRET, KEPT, "and more", "user"):
        assert text.encode() not in stored


async def test_entry_id_does_not_reveal_its_content(place: Place) -> None:
    versions = [await place.store().append(session_id, an_entry(SECRET)) for session_id in ("s", "other")]
    guessed = with_id(line_of(an_entry(SECRET)), digest_of).entry_id
    assert len({*versions, guessed}) == 3
    assert guessed.encode() not in place.everything()


async def test_same_entry_has_the_same_id_under_another_key(place: Place) -> None:
    version = await place.store(OLD).append("s", an_entry(SECRET))
    rotated = place.store(NEW)
    assert await rotated.append("s", an_entry(SECRET)) == version
    second = await rotated.append("s", an_entry("two", version))
    assert len(place.lines("s")) == 3
    assert await texts(place.store(NEW), second) == [SECRET, "two"]
    assert "$aes-gcm:old:" in place.line("s", 1).sealed and "$aes-gcm:new:" in place.line("s", 2).sealed
    with pytest.raises(MissingKey, match="is encrypted with key 'new', and that key is missing"):
        await place.store(OLD).read("s", version)


# ---------------------------------------------------------------- a line that is moved or changed


async def test_an_entry_of_another_session_is_rejected(place: Place) -> None:
    store = place.store()
    for session_id in ("s", "other"):
        await store.append(session_id, an_entry(SECRET))
    [version] = await store.read("s", place.line("s", 1).entry_id)
    place.write("s", [place.lines("s")[0], place.lines("other")[1]])
    with pytest.raises(DamagedStore, match=r"is damaged: it cannot be decrypted: .*belongs elsewhere"):
        await place.store().read("s", version)


async def test_a_whole_session_under_another_id_is_rejected(place: Place) -> None:
    await place.store().append("s", an_entry(SECRET))
    place.write("other", place.lines("s"))
    with pytest.raises(DamagedStore, match="it cannot be decrypted"):
        await place.store().heads("other")


async def test_entry_of_a_deleted_session_is_rejected_in_its_successor(place: Place) -> None:
    store = place.store()
    await store.append("s", an_entry(SECRET))
    old = place.lines("s")[1]
    await store.delete("s")
    await store.append("s", an_entry("another"))
    place.write("s", [*place.lines("s"), old])
    with pytest.raises(DamagedStore, match="it cannot be decrypted"):
        await place.store().heads("s")


@pytest.mark.parametrize("change", ["entry_id", "thread_id", "parent", "node_id", "sealed"])
async def test_changed_entry_is_rejected(place: Place, change: str) -> None:
    store = place.store()
    first = await store.append("s", an_entry("one"))
    await store.append("s", an_entry("two", first))
    line = place.line("s", 2)
    setattr(line, change, {"sealed": place.line("s", 1).sealed, "parent": ""}.get(change, "x"))
    place.put("s", 2, line)
    with pytest.raises(DamagedStore, match="it cannot be decrypted"):
        await place.store().read("s", first)


async def test_a_plain_entry_in_an_encrypted_session_is_rejected(place: Place) -> None:
    version = await place.store().append("s", an_entry(SECRET))
    forged = EntryLine("x", "t", version, [Message("user", "believe me").to_dict()])
    place.write("s", [*place.lines("s"), to_bytes(forged)])
    with pytest.raises(PlaintextRefused, match="Entry 'x' of session 's'"):
        await place.store().read("s", version)


# ---------------------------------------------------------------- with a key, without, with another

Use = Callable[[LoggedSessionStore], Awaitable[Any]]
USES: dict[str, Use] = {
    "append": lambda store: store.append("s", an_entry("more")),
    "begin": lambda store: store.append("new", an_entry("more")),
    "advance": lambda store: store.advance("s", SessionHead(thread_id="t", execution_id="e", version="")),
    "read": lambda store: store.read("s", ""),
    "heads": lambda store: store.heads("s"),
    "sessions": lambda store: store.sessions(),
    "delete": lambda store: store.delete("s"),
}


async def refusals(place: Place, encryption: AesGcm | None) -> dict[str, str]:
    """Return the error of each use of a new store object."""
    errors = {}
    for name, use in USES.items():
        try:
            await use(place.store(encryption))
        except (MissingKey, PlaintextRefused) as error:
            errors[name] = f"{error.code}: {error}"
    return errors


async def test_encrypted_store_without_its_key_rejects_every_use(place: Place) -> None:
    version = await place.store().append("s", an_entry(SECRET))
    before = place.lines("s")
    message = (
        f"missing_key: The session store {str(place.path)!r} is encrypted, and that key is missing. "
        "Pass encryption=AesGcm(key). Nothing was changed."
    )
    assert await refusals(place, None) == dict.fromkeys(USES, message)
    assert place.lines("s") == before and await place.store().sessions() == ["s"]
    assert await texts(place.store(), version) == [SECRET]


async def test_plain_store_with_a_key_rejects_every_use(place: Place) -> None:
    await place.store(None).append("s", an_entry(SECRET))
    before = place.lines("s")
    message = (
        f"plaintext_refused: The content of the session store {str(place.path)!r} is not encrypted, "
        "although this storage uses a key. It was written without the key and is rejected. Nothing was changed. "
        "Store encrypted sessions in a separate folder or file."
    )
    assert await refusals(place, OLD) == dict.fromkeys(USES, message)
    assert place.lines("s") == before and await place.store(None).sessions() == ["s"]


async def test_plain_session_in_an_encrypted_store_is_rejected_and_others_load(place: Place, tmp_path: Path) -> None:
    version = await place.store().append("s", an_entry(SECRET))
    elsewhere = Place(place.kind, tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    await elsewhere.store(None).append("a", an_entry("believe me"))
    place.write("a", elsewhere.lines("a"))
    with pytest.raises(PlaintextRefused, match="Session 'a' in"):
        await place.store().heads("a")
    assert await texts(place.store(), version) == [SECRET]


async def test_store_with_another_key_names_the_key_that_is_needed(place: Place) -> None:
    await place.store().append("s", an_entry(SECRET))
    message = (
        f"missing_key: Session 's' in {str(place.path)!r} is encrypted with key 'old', and that key is missing. "
        "Give AesGcm that key too. Nothing was changed."
    )
    assert await refusals(place, OTHER) == dict.fromkeys(("append", "advance", "read", "heads"), message)


def test_invalid_encryption_is_rejected_and_not_shown(place: Place) -> None:
    wrong: Any = "c2VjcmV0"
    with pytest.raises(TypeError, match=r"expects AesGcm\(key\), got a str") as refused:
        place.store(wrong)
    assert wrong not in str(refused.value)


async def test_store_without_a_key_keeps_its_line_format(place: Place) -> None:
    entry = an_entry("one", node_id="n", at=datetime(2026, 3, 1, tzinfo=UTC), state={"seen": 1})
    await place.store(None).append("s", entry)
    first, line = place.lines("s")
    pattern = rb'{"sum":".{22}","line":"session","session_id":"s","format":1,"created":"[0-9a-f]{16}"}\n'
    assert re.fullmatch(pattern, first)
    assert line == (
        b'{"sum":"n4suEApz7G7Oanchg1J8TQ","line":"entry","entry_id":"JTwGWb1qmzxD3Am1AEDN8A","thread_id":"t",'
        b'"messages":[{"type":"message","role":"user","contents":[{"type":"text","text":"one"}]}],'
        b'"node_id":"n","at":"2026-03-01T00:00:00Z","state":{"seen":1}}\n'
    )


# ---------------------------------------------------------------- in a workflow


def conversing(builder: AgentWorkflow) -> AgentWorkflow:
    return builder.with_conversation("shared").add_agent("a", RecordingAgent(f"heard: {SECRET}"))


async def test_a_workflow_with_keys_leaves_nothing_in_plain_text(place: Place) -> None:
    storage = FileCheckpointStorage(place.folder / "executions", encryption=OLD)
    builder = conversing(drafted()).with_checkpointing().with_workflow_store(storage)
    if place.kind == "json":
        builder.with_json_session_store(place.path, encryption=OLD)
    else:
        builder.with_sqlite_session_store(place.path, encryption=OLD)
    result = await builder.build().run(SECRET, "e")
    await storage.close()
    assert result.final_answer == f"heard: {SECRET}"
    messages = await place.store().messages("workflow-w-e", "workflow")
    assert [message.text for message in messages] == [SECRET, f"heard: {SECRET}"]
    assert SECRET.encode() not in place.everything()


def test_encrypted_workflow_store_rejects_a_plain_session_store(place: Place) -> None:
    encrypted = InMemoryCheckpointStorage(encryption=OLD)

    def built(store: LoggedSessionStore, storage: InMemoryCheckpointStorage = encrypted) -> int:
        return conversing(drafted()).with_workflow_store(storage).with_session_store(store).build().node_count

    problem = (
        "settings.conversation.mode: 'shared' stores messages as plain text, and the workflow store is encrypted: "
        "give the session store a key, too, such as with_json_session_store(folder, encryption=AesGcm(key))"
    )
    with pytest.raises(InvalidDefinition, match=re.escape(problem)):
        built(place.store(None))
    assert built(place.store()) == 1
    assert built(InMemorySessionStore()) == 1
    assert built(place.store(None), InMemoryCheckpointStorage()) == 1
    silent = (
        drafted().with_workflow_store(encrypted).with_session_store(place.store(None)).add_agent("a", RecordingAgent())
    )
    assert silent.build().node_count == 1, "no message is stored"


def test_encrypted_workflow_store_rejects_an_inner_plain_session_store(place: Place) -> None:
    inner = conversing(drafted("inner")).with_session_store(place.store(None)).build()
    builder = drafted().with_workflow_store(InMemoryCheckpointStorage(encryption=OLD)).add_workflow("team", inner)
    with pytest.raises(InvalidDefinition, match=re.escape("agents.team.workflow.settings.conversation.mode: 'shared'")):
        builder.build()
