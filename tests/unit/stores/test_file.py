"""The particulars of a store in a folder: a damaged file beside sound ones, and readers while a file is rewritten."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import FileCheckpointStorage, WorkflowCheckpoint
from perdure.errors import DamagedStore, StorageFailed
from perdure.stores.disk import Disk
from perdure.stores.file.store import FileStore
from perdure.testing.conformance.threads import at, checkpoint_ids, own, save_thread, thread_ids


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


# ---------------------------------------------------------------- one damaged thread


class NoReplacing(Disk):
    """As if the process died when it was about to put a new file in the place of the old one."""

    def replace(self, source: Path, target: Path) -> None:
        raise OSError("no more")


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


async def test_damaged_thread_with_interrupted_pruning_fails_no_list_of_others(tmp_path: Path) -> None:
    store = FileStore(tmp_path, disk=NoReplacing(syncs=False))
    for name in ("a", "b"):
        await save_thread(store, name, 3, events=1)
    with pytest.raises(StorageFailed):
        await store.prune("a", ["a-1"])
    await store.close()
    flip_a_bit(tmp_path / "a.jsonl")
    store = FileStore(tmp_path, fsync=False)
    assert "b" in await thread_ids(store)
    assert await checkpoint_ids(store, thread_id="b") == ["b-1", "b-2", "b-3"]
    assert await store.find_checkpoint("b-2") is not None and await store.head("b") is not None
    assert await store.events_after("b", 0)
    assert list(await store.pending_requests()) == [] and list(await store.due(at(0))) == []
    with pytest.raises(DamagedStore, match="'a'"):
        await own(store, "a")
    await (await own(store, "b")).save()
    await store.close()


# ---------------------------------------------------------------- reading while another prunes


class Meanwhile(Disk):
    """Does something just before the file of a thread is opened: the index was asked where things are by then."""

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self.act: Callable[[], None] | None = None

    def open(self, path: Path) -> int:
        if self.act is not None and path.name == "t.jsonl":
            act, self.act = self.act, None
            act()
        return super().open(path)


READS: dict[str, Callable[[FileStore], Awaitable[Any]]] = {
    "find_checkpoint": lambda store: store.find_checkpoint("t-8"),
    "head": lambda store: store.head("t"),
    "read_chunks": lambda store: store.read_chunks("t", [8, 9, 10]),
    "events_after": lambda store: store.events_after("t", 7),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_kept_checkpoints_are_readable_while_another_store_prunes(
    read: Callable[[FileStore], Awaitable[Any]], tmp_path: Path
) -> None:
    disk = Meanwhile()
    reader, pruner = FileStore(tmp_path, disk=disk), FileStore(tmp_path, fsync=False)
    await save_thread(pruner, "t", 10, events=1)
    expected = await read(pruner)
    assert expected
    done: list[int] = []
    disk.act = lambda: done.append(asyncio.run(pruner.prune("t", [f"t-{number}" for number in range(1, 7)])))
    assert await read(reader) == expected
    assert done == [6]
    await reader.close()
    await pruner.close()


# ---------------------------------------------------------------- descriptors


async def test_unclosed_storage_releases_its_files_with_its_object(tmp_path: Path) -> None:
    gc.collect()
    threads, before = set(threading.enumerate()), open_files()
    storages = [FileCheckpointStorage(tmp_path / str(number), fsync=False) for number in range(5)]
    for storage in storages:
        for name in ("t", "u"):
            await storage.save(WorkflowCheckpoint("w", "h", thread_id=name))
    assert open_files() >= before + 10
    own_threads = set(threading.enumerate()) - threads
    del storage
    storages.clear()
    gc.collect()
    for own_thread in own_threads:
        own_thread.join(5)
    assert open_files() <= before


ODD_IDS = [
    *("a/b", "a\\b", "../up", "../../etc/passwd", "..", ".", "/", "~", "/absolute", "C:\\thread", "con", "nul.txt"),
    *(
        'a:b*c?d"e<f>g|h',
        "with space",
        " ",
        "trailing. ",
        "new\nline",
        "tab\tbell\x07escape\x1b",
        "\x7f\x80\u200b\ufeff",
    ),
    *(
        "日本語",
        "🦀" * 30,
        "\u202eright to left",
        "%s %d %00 {} $HOME `id`",
        "-rf",
        "index.db",
        "index.lock",
        "a" * 101,
    ),
    *("ab", "AB", "Ab", "ab ", " ab", "ab.", "a_b", "a-b", "é", "e\u0301", "É", "ſ", "s", "K", "\u212a", ""),
]
"""Ids that some file system takes for each other, for a path, or for a name of its own."""


async def test_any_thread_id_has_a_file_of_its_own_inside_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "threads"
    store = FileStore(folder, fsync=False)
    for number, thread_id in enumerate(ODD_IDS):
        await save_thread(store, thread_id, checkpoint_id=f"c{number}")
    await store.close()
    assert os.listdir(tmp_path) == ["threads"]
    again = FileStore(folder, fsync=False)
    assert await thread_ids(again) == ODD_IDS
    for number, thread_id in enumerate(ODD_IDS):
        assert await checkpoint_ids(again, thread_id=thread_id) == [f"c{number}"]
    await again.delete_thread("AB")
    assert await thread_ids(again) == [name for name in ODD_IDS if name != "AB"]
    await again.close()
