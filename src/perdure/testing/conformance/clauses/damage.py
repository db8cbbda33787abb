"""A store closed, checked, measured and damaged: a read returns what was written, or raises."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from perdure.errors import DamagedCheckpoint, DamagedStore, NewerFormat, PerdureError, StorageFailed, ThreadBusy
from perdure.store import Store
from perdure.testing.conformance.clause import NotApplicable, NotKept, clause, expect, expect_equal, expect_raises
from perdure.testing.conformance.location import TrialLocation, files_of
from perdure.testing.conformance.threads import expect_state, expect_unchanged, own, save_full_thread, save_thread

THREADS = ("hit", "left alone")
MARK = "the mark of the thread that is hit"

Pieces: TypeAlias = "dict[str, bytes]"
"""What a read gave back of the bytes that were written."""


async def _root(method: str, name: str, store: Store) -> Pieces:
    checkpoint = await getattr(store, method)(name)
    return {} if checkpoint is None else {"root": checkpoint.root}


async def _events(thread_id: str, store: Store) -> Pieces:
    return {f"events from {batch.first_seq}": batch.body for batch in await store.events_after(thread_id, None)}


async def _read_opened(thread_id: str, store: Store) -> Pieces:
    opened = await store.open(thread_id, "looking", takeover=True)
    await store.release(opened.lease)
    if opened.damage is not None:
        raise DamagedCheckpoint(thread_id, opened.damage, thread_id)
    return {
        **({} if opened.root is None else {"root": opened.root}),
        **{f"journal of {entry.delivery_id}": entry.body for entry in opened.journal},
        **{f"item {item.item_id}": item.body for item in opened.inbox},
    }


def reads_of(name: str) -> dict[str, Callable[[Store], Awaitable[Pieces]]]:
    """All that gives back bytes, but for chunks: their readers compare the digests."""
    return {
        f"the head of {name!r}": partial(_root, "head", name),
        f"the events of {name!r}": partial(_events, name),
        f"{name!r}, opened": partial(_read_opened, name),
        **{f"checkpoint {n} of {name!r}": partial(_root, "find_checkpoint", f"{name}-{n}") for n in (1, 2, 4)},
    }


def is_damage(error: Exception) -> bool:
    """An error of the driver itself comes out as StorageFailed. Any other of ours would be a wrong answer."""
    errors = (DamagedCheckpoint, DamagedStore, StorageFailed, NewerFormat)
    return isinstance(error, errors) or not isinstance(error, PerdureError)


class WrittenThread:
    """A store with threads, closed, and what was read of it before."""

    def __init__(self, place: TrialLocation) -> None:
        self.place = place
        self.reads = reads_of(THREADS[0]) | reads_of(THREADS[1])
        self.read: dict[str, Pieces] = {}
        self._tried = 0

    async def write(self) -> WrittenThread:
        store = self.place.store
        for name in THREADS:
            await save_full_thread(store, name)
        owner = await own(store, THREADS[0])
        await owner.save(events=1, root=f'"{MARK}"'.encode(), unsettled=[5])
        await owner.release()
        self.read = {what: await read(store) for what, read in self.reads.items()}
        await store.close()
        if not self.place.files:
            raise NotApplicable("it needs a store with files in its folder, and this store has none there")
        return self

    async def compare(self, harm: Callable[[Path], str], *, may_lose: bool = False) -> tuple[Path, str, set[str]]:
        """A copy of the files, what was done to it, and which reads raised. Raises NotKept if one gave something else.

        `may_lose`: the change may hit the only record that something exists.
        """
        self._tried += 1
        folder, store = self.place.copy(f"damaged {self._tried}")
        done = harm(folder)
        failed = set()
        for what, read in self.reads.items():
            try:
                got = await read(store)
            except Exception as error:
                if not is_damage(error):
                    raise NotKept(f"with {done}, {what} raised {type(error).__name__}: {error}") from error
                failed.add(what)
                continue
            if may_lose:
                strange = [data for data in got.values() if data not in self.read[what].values()]
                expect_equal(f"with {done}, bytes of {what} that were never written there", strange, [])
            else:
                expect_equal(f"with {done}, {what}", got, self.read[what])
        await store.close()
        return folder, done, failed


def choose_file(files: list[Path], place: TrialLocation) -> Path:
    return place.chance.choices(files, [file.stat().st_size for file in files])[0]


@clause
async def a_changed_byte_anywhere_gives_no_other_bytes(disk: TrialLocation) -> None:
    """The checkpoint with this id, whichever thread it belongs to. Raises DamagedCheckpoint."""
    written = await WrittenThread(disk).write()

    def flip(folder: Path) -> str:
        file = choose_file(files_of(folder), disk)
        data = bytearray(file.read_bytes())
        index, bit = disk.chance.randrange(len(data)), 1 << disk.chance.randrange(8)
        data[index] ^= bit
        file.write_bytes(data)
        return f"byte {index} of {file.name} changed from {data[index] ^ bit} to {data[index]}"

    for _ in range(15):
        await written.compare(flip, may_lose=True)


@clause
async def a_file_that_was_cut_is_noticed_or_changes_nothing(disk: TrialLocation) -> None:
    """The thread's newest checkpoint, without claiming the thread. Raises DamagedCheckpoint."""
    written = await WrittenThread(disk).write()

    def cut(folder: Path) -> str:
        file = choose_file(files_of(folder), disk)
        size = file.stat().st_size
        left = disk.chance.randrange(1, size)
        os.truncate(file, left)
        return f"{file.name} cut from {size} to {left} bytes"

    for _ in range(10):
        await written.compare(cut)


@clause
async def a_file_that_is_gone_is_noticed_or_changes_nothing(disk: TrialLocation) -> None:
    """The thread's newest checkpoint, without claiming the thread. Raises DamagedCheckpoint."""
    written = await WrittenThread(disk).write()

    def remove(name: Path, folder: Path) -> str:
        (folder / name).unlink()
        return f"{name} removed"

    names = [file.relative_to(disk.folder / "store") for file in disk.files]
    for name in names:
        await written.compare(partial(remove, name), may_lose=len(names) == 1)  # without its only file: an empty store


@clause
async def a_changed_byte_of_what_was_written_is_noticed(disk: TrialLocation) -> None:
    """The thread's newest checkpoint, without claiming the thread. Raises DamagedCheckpoint."""
    written = await WrittenThread(disk).write()
    pieces = {data for read in written.read.values() for data in read.values() if len(data) > 5}
    for data in sorted(pieces):
        await written.compare(partial(change, data, place=disk))


def change(written: bytes, folder: Path, *, place: TrialLocation) -> str:
    """One byte of it, wherever it stands. Raises NotApplicable where no file has it."""
    index = place.chance.randrange(len(written))
    other = bytes([written[index] ^ 1])
    changed = []
    for file in files_of(folder):
        data = file.read_bytes()
        occurrences = data.count(written)
        if occurrences:
            file.write_bytes(data.replace(written, written[:index] + other + written[index + 1 :]))
            changed.append(f"byte {index} of {written[:40]!r} in {file.name}")
    if not changed:
        raise NotApplicable("what was written is not found in its files as it was given: they may be compressed")
    return " and ".join(changed) + " changed"


@clause
async def a_damaged_thread_is_found_and_leaves_the_others_usable(disk: TrialLocation) -> None:
    """All damage that the store can detect by itself."""
    written = await WrittenThread(disk).write()
    expect_equal("what is damaged before anything was", await disk.store.check(), [])
    await disk.store.close()
    for _ in range(3):
        folder, done, failed = await written.compare(partial(change, MARK.encode(), place=disk))
        expect("the head of 'hit'" in failed, f"with {done}, the head was read as if nothing had happened")
        others = sorted(what for what in failed if "'hit'" not in what)
        expect_equal(f"with {done}, what else could not be read", others, [])
        store = disk.at(folder)
        await (await own(store, "left alone", owner="run-2")).save()
        try:
            damages = await store.check()
        except Exception as error:
            if not is_damage(error):
                raise
            continue
        expect(damages, f"with {done}, a check found nothing")
        named = {damage.thread_id for damage in damages} - {None}
        expect_equal(f"with {done}, the threads that a check named", named, {"hit"})


@clause
async def it_has_every_method_of_the_contract(store: Store) -> None:
    """A store keeps threads."""
    methods = [member for member in inspect.getmembers(Store, inspect.isfunction) if not member[0].startswith("_")]
    expect_equal("what it lacks", [name for name, _ in methods if not callable(getattr(store, name, None))], [])
    is_async = inspect.iscoroutinefunction
    wrong = [name for name, method in methods if is_async(method) and not is_async(getattr(store, name))]
    expect_equal("what is not async", wrong, [])


@clause
async def a_closed_store_opens_itself_again_with_the_same_owners(store: Store) -> None:
    """Idempotent; a later call opens them again."""
    await save_full_thread(store)
    owner = await own(store)
    async with expect_unchanged(store):
        await store.close()
        await store.close()
    await store.close()
    await expect_raises(ThreadBusy, store.open("t", "run-2"), "opening a thread that is held, after a close")
    await owner.save()
    await store.close()
    await save_thread(store, "u")
    await expect_state(store, checkpoints=["t-1", "t-2", "t-4", "t-5", "u-1"])


@clause
async def a_check_of_a_sound_store_finds_and_changes_nothing(store: Store) -> None:
    """All damage that the store can detect by itself."""
    expect_equal("what is damaged in an empty one", await store.check(), [])
    await save_full_thread(store)
    await store.copy_thread("t", "copy")
    await store.prune("t", ["t-1"])
    await store.delete_thread("copy")
    await store.post("only posted to", "item", "message", b"1")
    again = await own(store, owner="run-2")
    await again.save("t-2", prunes=range(1, 10), prunes_events_before=9)
    await again.record(1)
    header, commits = await store.thread_header("t"), await store.commits("t")
    async with expect_unchanged(store):
        expect_equal("what is damaged in one that was used", await store.check(), [])
    expect_equal("the header after a check", await store.thread_header("t"), header)
    expect_equal("the commits after a check", await store.commits("t"), commits)
    await again.save()


@clause
async def its_size_follows_what_it_keeps(store: Store) -> None:
    """Bytes that the store occupies now."""
    empty = await store.size()
    expect(type(empty) is int and empty >= 0, f"the size of an empty store is {empty!r}")
    await save_thread(store, "u", 3, chunks={f"{index:064x}": f'"{index:0200x}"'.encode() for index in range(500)})
    small = await store.size()
    expect(small > empty, f"it took {empty} bytes when it was empty, and {small} with three checkpoints in it")
    await store.close()
    small = await store.size()
    owner = await own(store)
    for number in range(1, 6):
        await owner.save(brings=[f"{number} " + "x" * 200_000], drops=[f"{number - 1} " + "x" * 200_000])
    await store.close()
    large = await store.size()
    expect(large > small, f"it took {small} bytes, and {large} with a thread of 1 MB, when closed")
    await store.prune("t", [f"t-{number}" for number in range(1, 5)])
    after = await store.size()
    why = f"it took {small}, then {large} bytes, and {after} after four of five checkpoints were pruned"
    expect(after - small < (large - small) * 0.6, why)
    await owner.release()
    await store.delete_thread("t")
    after = await store.size()
    expect(after < small + (large - small) / 2, f"it took {small}, then {large} bytes, and {after} without that thread")
