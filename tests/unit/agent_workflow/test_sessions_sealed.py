"""Session stores with a key: without it, no message can be read or guessed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent_workflow.making import RecordingAgent, drafted
from tests.unit.agent_workflow.session_places import ON_DISK, open_sessions

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.sessions import InMemorySessionStore, SessionEntry, SessionHead, StorageSessionStore
from perdure.agents.conversation.message import Message
from perdure.codecs.aes_gcm import AesGcm
from perdure.errors import InvalidDefinition, MissingKey, PlaintextRefused
from perdure.storages import FileCheckpointStorage, InMemoryCheckpointStorage
from perdure.stores.encrypted.store import EncryptedStore

OLD, NEW = AesGcm({"old": bytes(32)}), AesGcm({"new": b"n" * 32, "old": bytes(32)}, current="new")
OTHER = AesGcm({"other": b"o" * 32})
SECRET, KEPT = "the launch code is 0000", "its agent keeps this"


class Place:
    """A folder or a database with sessions."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.path = folder / "sessions"
        self._opened: list[StorageSessionStore] = []

    def store(self, encryption: AesGcm | None = OLD) -> StorageSessionStore:
        """A new object over the same place."""
        self._opened.append(open_sessions(self.kind, self.folder, encryption))
        return self._opened[-1]

    async def close(self) -> None:
        for store in self._opened:
            await store.close()

    async def everything(self) -> bytes:
        if self.kind == "postgres":
            store: Any = self._opened[0].storage.store
            inner = store.inner if isinstance(store, EncryptedStore) else store
            commits = await inner.commits("conversation:s")
            return repr([await inner.thread_header("conversation:s"), *commits]).encode()
        return b"".join(path.read_bytes() for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture(params=ON_DISK)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    place = Place(request.param, tmp_path)
    yield place
    await place.close()


def an_entry(text: str, parent: str = "", **more: Any) -> SessionEntry:
    return SessionEntry(thread_id="t", parent=parent, messages=(Message("user", text),), **more)


async def texts(store: StorageSessionStore, version: str, session_id: str = "s") -> list[str]:
    return [message.text for message in await store.messages(session_id, "t", version)]


# ---------------------------------------------------------------- what is stored


async def test_messages_and_state_are_readable_only_with_the_key(place: Place) -> None:
    store = place.store()
    first = await store.append("s", an_entry(SECRET, node_id="a node", state={"memory": KEPT}))
    second = await store.append("s", an_entry("and more", first))
    joined = await store.append("s", SessionEntry(thread_id="t", parent=second, repeats=(first,)))
    await store.advance("s", SessionHead(thread_id="t", execution_id="e", version=joined))
    for reader in (store, place.store()):
        entries = await reader.read("s", joined)
        assert entries[first] == an_entry(SECRET, node_id="a node", state={"memory": KEPT})
        assert [message.text for message in await reader.messages("s", "t")] == [SECRET, "and more"]
        assert await reader.sessions() == ["s"]
    stored = await place.everything()
    assert b"conversation:s" in stored  # ids of sessions are in clear
    for text in (SECRET, KEPT, "and more", "user", "a node", first):
        assert text.encode() not in stored


async def test_entry_id_does_not_reveal_its_content(place: Place) -> None:
    store = place.store()
    versions = [await store.append(session_id, an_entry(SECRET)) for session_id in ("s", "other")]
    await store.delete("s")
    versions.append(await store.append("s", an_entry(SECRET)))
    assert len({*versions}) == 3


async def test_same_entry_has_the_same_id_under_another_key(place: Place) -> None:
    version = await place.store(OLD).append("s", an_entry(SECRET))
    rotated = place.store(NEW)
    assert await rotated.append("s", an_entry(SECRET)) == version
    second = await rotated.append("s", an_entry("two", version))
    assert await texts(place.store(NEW), second) == [SECRET, "two"]
    stored = await place.everything()
    assert b"$aes-gcm:old:" in stored and b"$aes-gcm:new:" in stored
    with pytest.raises(MissingKey, match="is encrypted with key 'new', and that key is missing"):
        await place.store(OLD).read("s", version)


async def test_rekeyed_sessions_do_not_need_the_old_key(place: Place) -> None:
    version = await place.store(OLD).append("s", an_entry(SECRET))
    store: Any = place.store(NEW).storage.store
    assert (await store.rekey()).is_complete
    assert await texts(place.store(AesGcm({"new": b"n" * 32})), version) == [SECRET]


# ---------------------------------------------------------------- with a key, without, with another

Use = Callable[[StorageSessionStore], Awaitable[Any]]
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
    messages = await refusals(place, None)
    assert messages.keys() == USES.keys()
    for message in messages.values():
        assert re.fullmatch(
            r"missing_key: The store '.+' is encrypted, and that key is missing\. "
            r"Pass encryption=AesGcm\(key\)\. Nothing was changed\.",
            message,
        )
    assert await place.store().sessions() == ["s"]
    assert await texts(place.store(), version) == [SECRET]


async def test_plain_store_with_a_key_rejects_every_use(place: Place) -> None:
    version = await place.store(None).append("s", an_entry(SECRET))
    messages = await refusals(place, OLD)
    assert messages.keys() == USES.keys()
    for message in messages.values():
        assert re.match("plaintext_refused: The content of '.+' is not encrypted, although this storage", message)
    assert await place.store(None).sessions() == ["s"]
    assert await texts(place.store(None), version) == [SECRET]


async def test_store_with_another_key_names_the_key_that_is_needed(place: Place) -> None:
    version = await place.store().append("s", an_entry(SECRET))
    messages = await refusals(place, OTHER)
    assert messages.keys() == USES.keys()
    assert all("is encrypted with key 'old', and that key is missing" in message for message in messages.values())
    assert await texts(place.store(), version) == [SECRET]


def test_invalid_encryption_is_rejected_and_not_shown(place: Place) -> None:
    wrong: Any = "c2VjcmV0"
    with pytest.raises(TypeError, match=r"expects AesGcm\(key\), got a str") as refused:
        place.store(wrong)
    assert wrong not in str(refused.value)


# ---------------------------------------------------------------- in a workflow


def conversing(builder: AgentWorkflow) -> AgentWorkflow:
    return builder.with_conversation("shared").add_agent("a", RecordingAgent(f"heard: {SECRET}"))


async def test_a_workflow_with_keys_leaves_nothing_in_plain_text(place: Place) -> None:
    storage = FileCheckpointStorage(place.folder / "executions", encryption=OLD)
    builder = conversing(drafted()).with_checkpointing().with_workflow_store(storage)
    if place.kind == "json":
        builder.with_json_session_store(place.path, encryption=OLD)
    elif place.kind == "sqlite":
        builder.with_sqlite_session_store(place.path, encryption=OLD)
    else:
        builder.with_session_store(place.store())
    result = await builder.build().run(SECRET, "e")
    await storage.close()
    assert result.final_answer == f"heard: {SECRET}"
    messages = await place.store().messages("workflow-w-e", "workflow")
    assert [message.text for message in messages] == [SECRET, f"heard: {SECRET}"]
    assert SECRET.encode() not in await place.everything()


def test_encrypted_workflow_store_rejects_a_plain_session_store(place: Place) -> None:
    encrypted = InMemoryCheckpointStorage(encryption=OLD)

    def built(store: StorageSessionStore, storage: InMemoryCheckpointStorage = encrypted) -> int:
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
