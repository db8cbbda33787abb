"""Faults: named points in the path of a storage where a test injects a failure, a pause or a crash."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, cast, get_args

from perdure.checkpoints.checkpoint import CheckpointID, WorkflowCheckpoint
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.clock import await_uncancelled
from perdure.errors import did_you_mean
from perdure.records import Commit, JournalEntry, Lease, OpenedThread
from perdure.store import Store
from perdure.stores.layer import StoreLayer


class FaultyStore(StoreLayer):
    """Any store, with a point at each of its writes. Reading has no point, but ends with a crash."""

    def __init__(self, store: Store, faults: Faults) -> None:
        super().__init__(store)
        self._faults = faults

    async def open(self, thread_id: str, owner: str, *, takeover: bool = False) -> OpenedThread:
        work = partial(self.inner.open, thread_id, owner, takeover=takeover)
        return await self._faults.around("open", work, thread_id)

    async def release(self, lease: Lease) -> None:
        await self._faults.around("release", partial(self.inner.release, lease), lease)

    async def commit(self, commit: Commit) -> None:
        await await_uncancelled(self._faults.around("commit", partial(self.inner.commit, commit), commit))

    async def append_journal(self, lease: Lease, entry: JournalEntry) -> None:
        await self._faults.around("journal", partial(self.inner.append_journal, lease, entry), entry)

    async def post(self, thread_id: str, item_id: str, kind: str, body: bytes) -> None:
        await self._faults.around("post", partial(self.inner.post, thread_id, item_id, kind, body), item_id)

    def __getattr__(self, name: str) -> Any:
        self._faults.check_alive()
        return getattr(self.inner, name)


class FaultyStorage(StoreCheckpointStorage):
    """One of perdure's storages, whose store has these faults: `FaultyStorage(storage, faults)`.

    Its writes are in `storage`, to be read after a crash.
    """

    def __init__(self, storage: StoreCheckpointStorage, faults: Faults) -> None:
        if not isinstance(storage, StoreCheckpointStorage):
            raise TypeError(
                f"FaultyStorage takes a storage of perdure's, got {storage!r}. For one that has only the six methods "
                "use faults.wrap(storage): its saves become commits."
            )
        self.__dict__.update(storage.__dict__)  # the same codec, the same declared types
        self.store = cast(Store, FaultyStore(storage.store, faults))


class FaultySixMethods:
    """A storage with only the six methods: saving is its one point, `commit`. All others end with a crash."""

    def __init__(self, storage: Any, faults: Faults) -> None:
        self._storage = storage
        self._faults = faults

    async def save(self, checkpoint: WorkflowCheckpoint) -> CheckpointID:
        saved: str = await self._faults.around("commit", partial(self._storage.save, checkpoint), checkpoint)
        return saved

    def __getattr__(self, name: str) -> Any:
        self._faults.check_alive()
        return getattr(self._storage, name)


Point: TypeAlias = Literal["open", "commit", "journal", "post", "release"]
When: TypeAlias = Literal["before", "after"]
Watcher: TypeAlias = Callable[[str, Any], None]

T = TypeVar("T")


class InjectedFault(Exception):
    """Raised at a point where a test planned a failure without an error of its own."""


class ProcessGone(BaseException):
    """Raised by a storage from its crash on, as if its process had ended.

    Not an `Exception`, so that no `except Exception` of the code under test survives its own death.
    """


class Pause:
    """A point that waits for the test: `await pause` returns when it is reached, `pause.resume()` lets it continue.

    As a block, `with faults.pause("commit") as pause:`, it continues at the end in any case. A run waits for a write
    that it has started even if it is cancelled, so a test that fails in the middle would never end.
    """

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._resumed = asyncio.Event()

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._reached.wait().__await__()

    @property
    def is_reached(self) -> bool:
        return self._reached.is_set()

    def resume(self) -> None:
        """Let it continue. Before the point is reached: it will not wait there."""
        self._resumed.set()

    def __enter__(self) -> Pause:
        return self

    def __exit__(self, *_: object) -> None:
        self.resume()

    async def hold(self) -> None:
        """The action at the point."""
        self._reached.set()
        await self._resumed.wait()


class Faults:
    """The faults that a test plans, each for one call of a storage.

    Points are `open`, `commit`, `journal` (a delivery or step is recorded), `post` (a handle sent something) and
    `release`. `nth` counts the calls from now on, for each point by itself. `when="before"`: the store did nothing
    yet; `"after"`: it did, and its caller gets no result.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How often each point was reached."""
        self.is_crashed = False
        self._planned: dict[tuple[str, int, str], Callable[[], Any]] = {}
        self._pauses: list[Pause] = []
        self._watchers: list[Watcher] = []

    def fail(
        self,
        point: Point,
        *,
        nth: int = 1,
        when: When = "before",
        error: BaseException | type[BaseException] | None = None,
    ) -> None:
        """Raise there, once: an InjectedFault, or the error given."""
        raised = InjectedFault(f"the test failed {point} {when} call {nth}") if error is None else error

        def act() -> NoReturn:
            raise raised

        self.call(point, act, nth=nth, when=when)

    def pause(self, point: Point, *, nth: int = 1, when: When = "before") -> Pause:
        """Wait there until the test calls `resume()`; everything else continues."""
        pause = Pause()
        self.call(point, pause.hold, nth=nth, when=when)
        self._pauses.append(pause)
        return pause

    def resume_all(self) -> None:
        """Let every pause continue, also later ones. The fixture `faults` does so at the end of a test."""
        for pause in self._pauses:
            pause.resume()

    def crash(self, point: Point, *, nth: int = 1, when: When = "before") -> None:
        """Raise ProcessGone there and at every later call, reading included.

        What was stored stays stored: resume with the storage itself, in another workflow object, and with
        `takeover=True`, since the dead owner did not release the thread.
        """

        def act() -> None:
            self.is_crashed = True

        self.call(point, act, nth=nth, when=when)

    def call(self, point: Point, function: Callable[[], Any], *, nth: int = 1, when: When = "before") -> None:
        """Call a function there, and await its result if it is awaitable."""
        points = get_args(Point)
        if point not in points:
            raise ValueError(f"No point {point!r} exists{did_you_mean(point, points)}. Points: {', '.join(points)}.")
        if when not in get_args(When):
            raise ValueError(f"when= expects 'before' or 'after', got {when!r}.")
        if type(nth) is not int or nth < 1:
            raise ValueError(f"nth= expects a positive integer, the first call being 1, got {nth!r}.")
        place = (point, self.counts[point] + nth, when)
        if place in self._planned:
            raise ValueError(f"A fault {when} call {nth} of {point} is planned already. Plan one fault for each call.")
        self._planned[place] = function

    def watch(self, watcher: Watcher) -> None:
        """Call the watcher with the point and the written data after each write of the store."""
        self._watchers.append(watcher)

    def wrap(self, storage: Any) -> Any:
        """The storage with these points in its path.

        One that has only the six methods has one point: its `save` is `commit`.
        """
        is_ours = isinstance(storage, StoreCheckpointStorage)
        return FaultyStorage(storage, self) if is_ours else FaultySixMethods(storage, self)

    async def around(self, point: Point, work: Callable[[], Awaitable[T]], written: Any = None) -> T:
        """Do the work, with the faults planned before and after it."""
        self.check_alive()
        self.counts[point] += 1
        number = self.counts[point]
        await self._act(point, number, "before")
        result = await work()
        for watcher in self._watchers:
            watcher(point, written)
        await self._act(point, number, "after")
        return result

    async def _act(self, point: str, number: int, when: str) -> None:
        function = self._planned.pop((point, number, when), None)
        if function is not None:
            done = function()
            if isinstance(done, Awaitable):
                await done
        self.check_alive()

    def check_alive(self) -> None:
        """Raises ProcessGone after a crash."""
        if self.is_crashed:
            raise ProcessGone("This storage crashed, as the test planned. Its process would have ended.")
