"""A payload is accepted only where it was written, as it was written, and by a writer that had the key."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import msgspec
import pytest
from tests.encryption.places import OLD, Place, closed

from perdure.codecs.aes_gcm import AesGcm
from perdure.errors import DamagedCheckpoint, PlaintextRefused
from perdure.records import Commit, InboxItem, JournalEntry, ThreadHeader
from perdure.store import Store
from perdure.testing.conformance.threads import own, save_full_thread

Commits: TypeAlias = list[Commit]
Change: TypeAlias = Callable[[ThreadHeader, Commits, Commits], tuple[ThreadHeader, Commits]]
"""What becomes of where the thread stands and of its commits; there are also those of another thread."""
replace: Callable[..., Any] = msgspec.structs.replace


async def written(place: Place) -> Store:
    """Two threads with something of everything; and the store below, for those who do harm."""
    store = place.store(AesGcm(OLD))
    await save_full_thread(store, "t")
    owner = await own(store, "t")
    await owner.record(6, b'{"done":2}')
    await owner.release()
    await store.post("t", "other", "message", b'"another"')
    await save_full_thread(store, "u")
    await closed(store)
    return place.store()


async def changed(place: Place, change: Change) -> Store:
    """Return the thread as a writer to the disk left it: the store's own checksums are made again."""
    below = await written(place)
    standing = await below.thread_header("t")
    assert standing is not None
    standing, commits = change(standing, list(await below.commits("t")), list(await below.commits("u")))
    await below.delete_thread("t")
    await below.add_thread(standing, commits)
    await closed(below)
    return place.store(AesGcm(OLD))


async def refused(read: Awaitable[Any], message: str, kind: type[Exception] = DamagedCheckpoint) -> None:
    with pytest.raises(kind, match=message):
        await read


async def all_chunks(store: Store) -> list[bytes]:
    chunks = await store.read_chunks("t", range(1, 9))
    return [data for held in chunks.values() for data in held.values()]


async def test_checkpoints_of_one_thread_cannot_be_swapped(place: Place) -> None:
    def change(standing: ThreadHeader, ours: Commits, _: Commits) -> tuple[ThreadHeader, Commits]:
        first, second, *rest = ours
        return standing, [replace(first, root=second.root), replace(second, root=first.root), *rest]

    store = await changed(place, change)
    message = "Checkpoint 't-1' of thread 't' cannot be read: the checkpoint of commit 1"
    await refused(store.find_checkpoint("t-1"), message)
    await refused(store.find_checkpoint("t-2"), "cannot be decrypted: it was changed, belongs elsewhere")
    assert (await store.find_checkpoint("t-4")) is not None
    await closed(store)


async def test_checkpoint_of_another_thread_is_refused(place: Place) -> None:
    store = await changed(
        place, lambda standing, ours, theirs: (standing, [*ours[:-1], replace(ours[-1], root=theirs[-1].root)])
    )
    await refused(store.head("t"), "of thread 't' cannot be read: the checkpoint of commit 4")
    opened = await store.open("t", "run-1")
    assert opened.root is None and "commit 4 cannot be decrypted" in str(opened.damage)
    await store.release(opened.lease)
    assert [damage.thread_id for damage in await store.check()] == ["t"]
    await closed(store)


async def test_events_and_chunks_cannot_be_swapped(place: Place) -> None:
    def change(standing: ThreadHeader, ours: Commits, _: Commits) -> tuple[ThreadHeader, Commits]:
        first, second, *rest = ours
        assert first.events is not None and second.events is not None
        names = list(first.chunks)
        return standing, [
            replace(
                first,
                events=replace(first.events, body=second.events.body),
                chunks=dict(zip(names, reversed([*first.chunks.values()]), strict=True)),
            ),
            second,
            *rest,
        ]

    store = await changed(place, change)
    await refused(store.events_after("t", 0), "the event log of commit 1 cannot be decrypted")
    await refused(all_chunks(store), "'of commit 1' of thread 't' cannot be read: chunk .* cannot be decrypted")
    await refused(store.commits("t"), "cannot be decrypted")
    await closed(store)


def _waiting(journal: Iterable[JournalEntry], inbox: Iterable[InboxItem], standing: ThreadHeader) -> ThreadHeader:
    changed: ThreadHeader = replace(standing, journal=list(journal), inbox=list(inbox))
    return changed


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda s: _waiting([replace(s.journal[0], body=s.journal[1].body)], s.inbox, s), "the journal of delivery 5"),
        (lambda s: _waiting(s.journal, [replace(s.inbox[0], body=s.inbox[1].body)], s), "item item of the inbox"),
        (
            lambda s: _waiting(s.journal, [replace(s.inbox[0], kind="cancel")], s),
            "item 'item' of the inbox had another",
        ),
    ],
    ids=["journal", "inbox", "kind of an item"],
)
async def test_journal_and_inbox_payloads_cannot_be_swapped_or_relabelled(
    place: Place, harm: Callable[[ThreadHeader], ThreadHeader], message: str
) -> None:
    store = await changed(place, lambda standing, ours, _: (harm(standing), ours))
    await refused(store.thread_header("t"), message)
    opened = await store.open("t", "run-1")
    assert message in str(opened.damage) and not opened.journal and not opened.inbox
    await closed(store)


async def test_plain_payload_is_refused_in_an_encrypted_store(place: Place) -> None:
    below = await written(place)
    owner = await own(below, "t")
    await owner.save("forged", root=b'{"plain":"root"}', events=1)
    await owner.release()
    store = place.store(AesGcm(OLD))
    place_of_it = r"The checkpoint of commit 5 in thread 't' is not encrypted, although this storage uses a key"
    await refused(store.head("t"), place_of_it, PlaintextRefused)
    await refused(store.find_checkpoint("forged"), place_of_it, PlaintextRefused)
    await refused(store.events_after("t", 0), "The event log of commit 5 in thread 't' is not", PlaintextRefused)
    opened = await store.open("t", "run-1")  # so that it can be sent to an older checkpoint
    assert opened.damage == "The checkpoint of commit 5 in thread 't' is not encrypted"
    assert opened.info is not None and opened.info.checkpoint_id == "forged"
    await store.release(opened.lease)
    assert (await store.find_checkpoint("t-4")) is not None
    assert {(damage.thread_id, re.sub(r" although.*", "", damage.reason)) for damage in await store.check()} == {
        ("t", "The checkpoint of commit 5 in thread 't' is not encrypted,"),
        ("t", "The event log of commit 5 in thread 't' is not encrypted,"),
    }
    await closed(store, below)


async def test_plain_message_in_an_encrypted_store_is_not_delivered(place: Place) -> None:
    below = await written(place)
    await below.post("t", "forged", "message", b'"pay everybody"')
    store = place.store(AesGcm(OLD))
    opened = await store.open("t", "run-1")
    assert opened.damage == "Item forged of the inbox in thread 't' is not encrypted" and not opened.inbox
    await closed(store, below)
