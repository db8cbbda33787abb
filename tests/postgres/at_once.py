"""Everything that may be done to a few threads, done at the same time, and what must hold all the while."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from perdure.errors import (
    CheckpointNotFound,
    CursorExpired,
    DamagedCheckpoint,
    ThreadBusy,
    ThreadConflict,
    ThreadNotFound,
)
from perdure.records import OpenedThread
from perdure.store import Store
from perdure.testing.conformance.threads import ThreadOwner

NAMES = ("one", "two")


class Acknowledged:
    """What was acknowledged and the next owner must see.

    What a commit takes away while it is under way may be there or not.
    """

    def __init__(self) -> None:
        self.there: set[Any] = set()
        self.going: set[Any] = set()

    def sure(self) -> set[Any]:
        return self.there - self.going


class AtOnce:
    """Work of many stores at once. A root names all chunks of its checkpoint, so a reader can check for them."""

    def __init__(self, stores: Sequence[Store], *, seconds: float, seed: int | None = None) -> None:
        self.seed = random.randrange(10**9) if seed is None else seed
        print(f"seed {self.seed}")
        self._random = random.Random(self.seed)
        self._stores = stores
        self.store = stores[0]
        self._end = time.monotonic() + seconds
        self._made = 0
        self._journal: dict[str, Acknowledged] = defaultdict(Acknowledged)
        self._read: set[int] = set()
        """Entries that a later owner of their thread has read. Its commit may settle them before their writer has the
        acknowledgement."""
        self._posts: dict[str, Acknowledged] = defaultdict(Acknowledged)
        self._pinned: set[str] = set()
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def run(self) -> None:
        acts = [self._own, self._own, self._post, self._prune, self._pin, self._copy, self._rewrite, self._follow]
        await asyncio.gather(*(act(self._stores[place % len(self._stores)]) for place, act in enumerate(acts)))
        for name in NAMES:
            await self._check_chunks(self.store, name)

    def _is_over(self) -> bool:
        return bool(self.wrong) or time.monotonic() > self._end

    def _new(self) -> int:
        self._made += 1
        return self._made

    async def _rest(self) -> None:
        await asyncio.sleep(self._random.random() * 0.01)

    def _some(self, things: Iterable[Any], chance: float = 0.5) -> list[Any]:
        return [thing for thing in things if self._random.random() < chance]

    # ------------------------------------------------------------ owners

    async def _own(self, store: Store) -> None:
        while not self._is_over():
            name = self._random.choice(NAMES)
            journal, posts = self._journal[name].sure(), self._posts[name].sure()
            try:
                opened = await store.open(name, f"run-{self._new()}", takeover=self._random.random() < 0.3)
            except ThreadBusy:
                await self._rest()
                continue
            self._check_opened(opened, journal & self._journal[name].sure(), posts & self._posts[name].sure())
            try:
                await self._move(ThreadOwner(store, opened, "w"))
            except ThreadConflict:
                self.done["conflict"] += 1

    def _check_opened(self, opened: OpenedThread, journal: set[Any], posts: set[Any]) -> None:
        if opened.damage is not None:
            self.wrong.append(f"opened a thread that is damaged: {opened.damage}")
        self._read |= {entry.delivery_id for entry in opened.journal}
        if lost := journal - {entry.delivery_id for entry in opened.journal}:
            self.wrong.append(f"journal entries lost: {lost}")
        if lost := posts - {item.item_id for item in opened.inbox}:
            self.wrong.append(f"posts lost: {lost}")

    async def _move(self, owner: ThreadOwner) -> None:
        name, waiting = owner.lease.thread_id, {item.item_id for item in owner.opened.inbox}
        has = _needs(owner.opened.root)
        for _ in range(self._random.randrange(1, 8)):
            act = self._random.random()
            if act < 0.3:
                delivery_id = self._new()
                await owner.record(delivery_id)
                if delivery_id not in self._read:
                    self._journal[name].there.add(delivery_id)
            elif act < 0.4:
                await owner.note(events=self._random.randrange(2))
            else:
                consumed = self._some(waiting)
                waiting -= set(consumed)
                has = await self._save(owner, has, consumed, goes_back=act < 0.5)
        if self._random.random() < 0.7:
            await owner.release()

    async def _save(self, owner: ThreadOwner, has: set[str], consumed: list[str], *, goes_back: bool) -> set[str]:
        """What the checkpoint needs."""
        name, number, parts = owner.lease.thread_id, owner.number + 1, {}
        if goes_back and (infos := await owner.store.infos(thread_id=name)):
            stored = await owner.store.find_checkpoint(self._random.choice(infos).checkpoint_id)
            if stored is not None:
                owner.head, has = stored.info, _needs(stored.root)
        dropped = sorted(has)[: self._random.randrange(3)]
        chunks = {f"{self._random.getrandbits(96):024x}": b'"%d"' % number for _ in range(self._random.randrange(4))}
        has = has - set(dropped) | {f"{digest}.{number}" for digest in chunks}
        if self._random.random() < 0.6:
            parent = None if owner.head is None else owner.head.number
            parts["prunes"] = [
                earlier for earlier in self._some(range(max(1, number - 30), number)) if earlier != parent
            ]
        journal, posts = self._journal[name], self._posts[name]
        going = (set(journal.there), set(consumed))
        journal.going |= going[0]
        posts.going |= going[1]
        try:
            await owner.save(
                f"{name}-{number}-{self._new()}",
                events=self._random.randrange(3),
                root=json.dumps({"needs": sorted(has)}).encode(),
                chunks=chunks,
                dropped=dropped,
                consumed=consumed,
                prunes_events_before=max(0, number - 5) if self._random.random() < 0.3 else 0,
                **parts,
            )
            journal.there -= going[0]
            posts.there -= going[1]
        finally:
            journal.going -= going[0]
            posts.going -= going[1]
        self.done["commit"] += 1
        return has

    # ------------------------------------------------------------ others

    async def _post(self, store: Store) -> None:
        while not self._is_over():
            name, item_id = self._random.choice(NAMES), f"item-{self._new()}"
            await store.post(name, item_id, "k", b"1")
            self._posts[name].there.add(item_id)
            await self._rest()

    async def _prune(self, store: Store) -> None:
        while not self._is_over():
            name = self._random.choice(NAMES)
            infos = await store.infos(thread_id=name)
            before = infos[-1].number - 5 if infos and self._random.random() < 0.3 else 0
            ids = self._some([info.checkpoint_id for info in infos[:-1]], 0.3)
            try:
                self.done["pruned"] += await store.prune(name, ids, events_before=max(0, before))
            except ThreadBusy:  # the last but one became the head: an owner saved under an id that exists
                self.done["busy"] += 1
            await self._rest()

    async def _pin(self, store: Store) -> None:
        while not self._is_over():
            infos = await store.infos(thread_id=self._random.choice(NAMES))
            if infos and len(self._pinned) < 5:
                chosen = self._random.choice(infos).checkpoint_id
                try:
                    await store.pin(chosen)
                    self._pinned.add(chosen)
                    self.done["pin"] += 1
                except CheckpointNotFound:
                    self.done["pinned too late"] += 1
            for checkpoint_id in sorted(self._pinned):
                stored = await store.find_checkpoint(checkpoint_id)
                if stored is None:
                    self.wrong.append(f"{checkpoint_id} was pinned, and is gone")
                else:
                    await self._check_chunks(store, stored.info.thread_id, [checkpoint_id])
            if len(self._pinned) > 3:
                await store.unpin(self._pinned.pop())
            await self._rest()

    async def _copy(self, store: Store) -> None:
        while not self._is_over():
            name, to = self._random.choice(NAMES), f"copy {self._new()}"
            try:
                await store.copy_thread(name, to)
            except ThreadNotFound:  # nothing was put into it yet
                await self._rest()
                continue
            self.done["copy"] += 1
            await store.head(to)
            await self._check_chunks(store, to)
            if not await store.delete_thread(to):
                self.wrong.append(f"{to} was not there to be deleted")
            await self._rest()

    async def _rewrite(self, store: Store) -> None:
        while not self._is_over():
            await store.rewrite(self._random.choice(NAMES), lambda kind, name, body: body.strip() + b" " * len(name))
            self.done["rewrite"] += 1
            await self._rest()

    async def _follow(self, store: Store) -> None:
        seen: Counter[str] = Counter()
        while not self._is_over():
            name = self._random.choice(NAMES)
            try:
                for events in await store.events_after(name, seen[name]):
                    if events.first_seq > seen[name] + 1:
                        self.wrong.append(f"events {seen[name] + 1} to {events.first_seq - 1} of {name} were left out")
                    seen[name] = events.first_seq + events.count - 1
            except CursorExpired as error:
                seen[name] = error.oldest - 1
            await self._report_damage(store.head(name))
            await self._rest()

    async def _report_damage(self, reading: Coroutine[Any, Any, object]) -> None:
        try:
            await reading
        except DamagedCheckpoint as error:
            self.wrong.append(str(error))

    async def _check_chunks(self, store: Store, thread_id: str, ids: Sequence[str] | None = None) -> None:
        """Of a checkpoint that is still there afterwards."""
        for checkpoint_id in ids or [info.checkpoint_id for info in await store.infos(thread_id=thread_id)]:
            stored = await store.find_checkpoint(checkpoint_id)
            needs = set() if stored is None else _needs(stored.root)
            held = await store.read_chunks(thread_id, {int(ref.rpartition(".")[2]) for ref in needs})
            missing = needs - {f"{digest}.{number}" for number, chunks in held.items() for digest in chunks}
            if missing and await store.find_checkpoint(checkpoint_id) is not None:
                self.wrong.append(f"{checkpoint_id} needs {sorted(missing)}, and they are not there")


def _needs(root: bytes | None) -> set[str]:
    return set() if root is None else set(json.loads(root)["needs"])
