"""Executors' memory in a thread: taken with every commit, put back after a failure or a rewind."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.codec import Codec, Encoded
from holdfast.engine import hooks
from holdfast.engine.effects import Effects
from holdfast.engine.position import Position
from holdfast.engine.thread import Thread
from holdfast.errors import CheckpointHookFailed
from holdfast.graph.executor import Executor
from holdfast.graph.isolation import isolated


class ExecutorMemories:
    """Keeps hook dicts frozen, so that no live object can change them, and thaws a copy each time one is needed.

    With a storage they are frozen into trees, which the checkpoint needs anyway; without one they are copied.
    """

    def __init__(self, thread: Thread, hooked: Collection[str], codec: Codec | None) -> None:
        self._thread = thread
        self._hooked = hooked
        self._codec = codec

    async def taken(self, executor: Executor, position: Position) -> Any:
        """What the executor keeps now, frozen. Raises CheckpointHookFailed or UnsavableValue."""
        kept = await hooks.save(executor, position, self._thread.thread_id)
        return self._frozen(kept, executor.id)

    async def take_into(self, effects: Effects, executor: Executor) -> None:
        """What the executor keeps after one delivery, with what its hook wrote through `ctx`."""
        before = self._thread.position
        seen = before.successor()
        if effects.private is not None:
            seen.private = {**seen.private, executor.id: isolated(effects.private)}
        effects.saved = await self.taken(executor, seen)
        if seen.private is not before.private:
            effects.private = seen.private.get(executor.id)
        effects.writes += [
            (key, value) for key, value in seen.state.items() if before.state.get(key, effects) is not value
        ]

    async def put_back(self, executor: Executor, frozen: Any, position: Position) -> None:
        """Give the executor what it kept then. Raises CheckpointHookFailed."""
        if isinstance(frozen, Encoded):
            state = frozen.codec.decode(frozen.tree, f"executors[{executor.id!r}].saved")
        else:
            state = isolated(frozen)
        await hooks.restore(executor, state, position, self._thread.thread_id)

    def _frozen(self, kept: dict[str, Any], executor_id: str) -> Any:
        if self._codec is None:
            return isolated(kept)
        return Encoded(self._codec.encode(kept, f"executors[{executor_id!r}].saved"), self._codec)

    async def remember(self, after: Position) -> None:
        """Ask every executor with hooks what it keeps, whether it ran or not: they may share objects."""
        executors = self._thread.executors
        saved = dict(after.saved)
        for executor_id in self._hooked:
            if executor_id in executors:
                saved[executor_id] = await self.taken(executors[executor_id], after)
        after.saved = saved

    async def restore(self, executor_id: str) -> None:
        """Put an executor where the position says; one that the position does not know is made anew."""
        thread = self._thread
        frozen = thread.position.saved.get(executor_id)
        if frozen is None:
            thread.executors.pop(executor_id, None)
        else:
            await self.put_back(thread.executors[executor_id], frozen, thread.position)

    async def restore_here(self) -> None:
        """Put every executor with hooks where the position says, whether it ran or not: they may share objects.

        All of them are tried; the first error is raised then, and the thread stays marked.
        """
        errors = []
        for executor_id in self._hooked:
            if executor_id in self._thread.executors:
                try:
                    await self.restore(executor_id)
                except CheckpointHookFailed as error:
                    errors.append(error)
        if errors:
            raise errors[0]
        self._thread.is_dirty = False

    async def restore_all(self, position: Position, saved: dict[str, Any]) -> None:
        """Stand at another position. If a hook fails, the thread stands where it stood."""
        thread = self._thread
        position.saved = {key: self._frozen(value, key) for key, value in saved.items()}
        before, thread.position = thread.position, position
        for executor_id in saved:
            thread.executors[executor_id]  # made now, to be restored with the others
        try:
            await self.restore_here()
        except BaseException:
            thread.position, thread.is_dirty = before, True
            raise
        thread.journal = {}
