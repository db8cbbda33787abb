"""Files of the store changed, cut and removed: a read returns what was written, or raises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from perdure.errors import DamagedCheckpoint, DamagedStore, NewerFormat, PerdureError, StorageFailed
from perdure.store import Store
from perdure.testing.conformance.clause import Needs, NotApplicable, NotKept, clause_with, expect, expect_equal
from perdure.testing.conformance.location import TrialLocation, files_of
from perdure.testing.conformance.threads import own, save_full_thread

THREADS = ("hit", "left alone")
MARK = "the mark of the thread that is hit"

Pieces: TypeAlias = "dict[str, bytes]"
"""What a read gave back of the bytes that were written."""


async def _head(thread_id: str, store: Store) -> Pieces:
    head = await store.head(thread_id)
    return {} if head is None else {"root": head.root}


async def _checkpoint(checkpoint_id: str, store: Store) -> Pieces:
    checkpoint = await store.find_checkpoint(checkpoint_id)
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


def reads_of(thread_ids: Iterable[str]) -> dict[str, Callable[[Store], Awaitable[Pieces]]]:
    """All that gives back bytes, but for chunks: their readers compare the digests."""
    reads: dict[str, Callable[[Store], Awaitable[Pieces]]] = {}
    for name in thread_ids:
        reads[f"the head of {name!r}"] = partial(_head, name)
        reads[f"the events of {name!r}"] = partial(_events, name)
        reads[f"{name!r}, opened"] = partial(_read_opened, name)
        for number in (1, 2, 4):
            reads[f"checkpoint {number} of {name!r}"] = partial(_checkpoint, f"{name}-{number}")
    return reads


def is_damage(error: Exception) -> bool:
    """An error of the driver itself comes out as StorageFailed. Any other of ours would be a wrong answer."""
    errors = (DamagedCheckpoint, DamagedStore, StorageFailed, NewerFormat)
    return isinstance(error, errors) or not isinstance(error, PerdureError)


class WrittenThread:
    """A store with threads, closed, and what was read of it before."""

    def __init__(self, place: TrialLocation) -> None:
        self.place = place
        self.reads = reads_of(THREADS)
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
            raise NotApplicable("it needs a store that keeps files in its folder, and this one keeps none there")
        return self

    async def compare(self, harm: Callable[[Path], str], *, may_lose: bool = False) -> tuple[str, set[str]]:
        """What was done to a copy of the files, and which reads raised. Raises NotKept if one gave something else.

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
        return done, failed


def choose_file(files: list[Path], place: TrialLocation) -> Path:
    return place.chance.choices(files, [file.stat().st_size for file in files])[0]


@clause_with(Needs.FILES)
async def a_changed_byte_anywhere_gives_no_other_bytes(place: TrialLocation) -> None:
    """The checkpoint with this id, whichever thread it belongs to. Raises DamagedCheckpoint."""
    written = await WrittenThread(place).write()

    def flip(folder: Path) -> str:
        file = choose_file(files_of(folder), place)
        data = bytearray(file.read_bytes())
        index, bit = place.chance.randrange(len(data)), 1 << place.chance.randrange(8)
        data[index] ^= bit
        file.write_bytes(data)
        return f"byte {index} of {file.name} changed from {data[index] ^ bit} to {data[index]}"

    for _ in range(15):
        await written.compare(flip, may_lose=True)


@clause_with(Needs.FILES)
async def a_changed_byte_of_what_was_written_is_noticed(place: TrialLocation) -> None:
    """The thread's newest checkpoint, without claiming the thread. Raises DamagedCheckpoint."""
    written = await WrittenThread(place).write()
    pieces = {data for read in written.read.values() for data in read.values() if len(data) > 5}
    for data in sorted(pieces):
        await written.compare(partial(change, data, place=place))


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


@clause_with(Needs.FILES)
async def a_file_that_was_cut_is_noticed_or_changes_nothing(place: TrialLocation) -> None:
    """The thread's newest checkpoint, without claiming the thread. Raises DamagedCheckpoint."""
    written = await WrittenThread(place).write()

    def cut(folder: Path) -> str:
        file = choose_file(files_of(folder), place)
        size = file.stat().st_size
        left = place.chance.randrange(1, size)
        with file.open("r+b") as opened:
            opened.truncate(left)
        return f"{file.name} cut from {size} to {left} bytes"

    for _ in range(10):
        await written.compare(cut)


@clause_with(Needs.FILES)
async def a_file_that_is_gone_is_noticed_or_changes_nothing(place: TrialLocation) -> None:
    """The thread's newest checkpoint, without claiming the thread. Raises DamagedCheckpoint."""
    written = await WrittenThread(place).write()
    names = [file.relative_to(place.folder / "store") for file in place.files]
    for name in names:

        def remove(folder: Path, name: Path = name) -> str:
            (folder / name).unlink()
            return f"{name} removed"

        await written.compare(remove, may_lose=len(names) == 1)  # without its only file it is an empty store


@clause_with(Needs.FILES)
async def a_damaged_thread_leaves_the_others_usable(place: TrialLocation) -> None:
    """The thread's newest checkpoint, without claiming the thread. Raises DamagedCheckpoint."""
    written = await WrittenThread(place).write()
    folders: list[Path] = []

    def harm(folder: Path) -> str:
        folders.append(folder)
        return change(MARK.encode(), folder, place=place)

    done, failed = await written.compare(harm)
    expect("the head of 'hit'" in failed, f"with {done}, the head was read as if nothing had happened")
    expect_equal(
        f"with {done}, what else could not be read", sorted(what for what in failed if "'hit'" not in what), []
    )
    owner = await own(place.at(folders[0]), "left alone", owner="run-2")
    await owner.save()


@clause_with(Needs.FILES)
async def a_check_finds_what_is_damaged(place: TrialLocation) -> None:
    """All damage that the store can detect by itself."""
    await WrittenThread(place).write()
    expect_equal("what is damaged before anything was", list(await place.store.check()), [])
    await place.store.close()
    for turn in range(3):
        folder, store = place.copy(f"damaged {turn}")
        done = change(MARK.encode(), folder, place=place)
        try:
            damages = list(await store.check())
        except Exception as error:
            if not is_damage(error):
                raise
            continue
        expect(damages, f"with {done}, a check found nothing")
        expect_equal(
            f"with {done}, the threads that a check named", {damage.thread_id for damage in damages} - {None}, {"hit"}
        )
