"""Executors' memory in a thread: saved with every commit, restored after a failure or a rewind."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, MutableMapping
from functools import lru_cache
from typing import Any

from perdure.checkpoints.any_storage import OpenThread
from perdure.checkpoints.delta.recent import IncrementalEncoder
from perdure.codec import Encoded
from perdure.engine.delivery.scope import value_of
from perdure.engine.thread.compiled import Compiled
from perdure.engine.thread.level import Level, instances_of
from perdure.engine.thread.live_threads import LiveThread
from perdure.engine.thread.position import Effects, Position, every_level
from perdure.errors import CheckpointHookFailed
from perdure.graph.executor import Executor
from perdure.isolation import is_immutable, isolate


class HookContext:
    """The context of a checkpoint hook: the executor's private state, and the shared state."""

    __slots__ = ("_position", "executor_id", "thread_id")

    def __init__(self, position: Position, executor_id: str, thread_id: str) -> None:
        self._position = position
        self.executor_id = executor_id
        self.thread_id = thread_id

    @property
    def private(self) -> MutableMapping[str, Any]:
        # Positions share their parts until one of them is changed: this one gets its own.
        own: dict[str, Any] = isolate(self._position.private.get(self.executor_id, {}))
        self._position.private = {**self._position.private, self.executor_id: own}
        return own

    def get_state(self, key: str, default: Any = None) -> Any:
        return isolate(self._position.state.get(key, default))

    def set_state(self, key: str, value: Any) -> None:
        self._position.state = {**self._position.state, key: isolate(value)}


@lru_cache(1024)
def _takes_context(function: Any, without: int) -> bool:
    return len(inspect.signature(function).parameters) > without


async def _call_hook(executor: Executor, name: str, position: Position, thread_id: str, *arguments: Any) -> Any:
    """Raises CheckpointHookFailed if the hook raises."""
    hook = getattr(type(executor), name)
    if _takes_context(hook, 1 + len(arguments)):
        arguments = (*arguments, HookContext(position, executor.id, thread_id))
    try:
        return await hook(executor, *arguments)
    except Exception as error:
        raise CheckpointHookFailed(executor.id, name, repr(error)) from error


_Here = tuple[Compiled, Position, dict[str, Executor], str]
"""A workflow of the nesting: its graph, its position, its executors, and its path."""


class ExecutorMemories:
    """Keeps hook dicts frozen, so that no live object can change them, and restores from copies.

    With a storage they are encoded, which the checkpoint needs anyway; without one they are copied.
    """

    def __init__(self, thread: LiveThread, compiled: Compiled, stored_thread: OpenThread | None) -> None:
        self._thread = thread
        self._compiled = compiled
        self._codec = None if stored_thread is None else stored_thread.codec
        self._unchanged: dict[str, IncrementalEncoder] = {} if stored_thread is None else stored_thread.unchanged

    async def take(self, executor: Executor, position: Position, path: str = "") -> Any:
        """The executor's memory now, frozen. Raises CheckpointHookFailed or UnsavableValue."""
        saved = await _call_hook(executor, "on_checkpoint_save", position, self._thread.thread_id)
        if not isinstance(saved, dict):
            raise CheckpointHookFailed(executor.id, "on_checkpoint_save", f"it returned {saved!r}, expected a dict")
        return self._freeze(saved, path + executor.id)

    async def take_into(self, effects: Effects, executor: Executor, before: Position) -> None:
        """Add the executor's memory after one delivery to its effects, with the writes of its hook."""
        seen = before.successor()
        if effects.private is not None:
            seen.private = {**seen.private, executor.id: isolate(effects.private)}
        effects.saved = await self.take(executor, seen)
        if seen.private is not before.private:
            effects.private = seen.private.get(executor.id)
        effects.write((key, value) for key, value in seen.state.items() if before.state.get(key, effects) is not value)

    async def put_back(self, executor: Executor, frozen: Any, position: Position) -> None:
        """Restore the executor from its frozen memory. Raises CheckpointHookFailed."""
        state = value_of(frozen, f"executors[{executor.id!r}].saved")
        await _call_hook(executor, "on_checkpoint_restore", position, self._thread.thread_id, state)

    def _freeze(self, saved: Any, executor_id: str) -> Any:
        if self._codec is None:
            return isolate(saved)
        if isinstance(saved, Encoded):
            return saved
        path = f"executors[{executor_id!r}].saved"
        if type(saved) is not dict:
            return Encoded(self._codec.encode(saved, path), self._codec)
        unchanged = self._unchanged.get(executor_id)
        if unchanged is None:
            unchanged = self._unchanged[executor_id] = IncrementalEncoder(is_immutable)
        return Encoded(unchanged.encode(saved, path, self._codec), self._codec)

    def _levels(
        self, compiled: Compiled, position: Position, executors: dict[str, Executor], path: str = ""
    ) -> Iterator[_Here]:
        yield compiled, position, executors, path
        for child in position.children.values():
            inner = compiled.children.get(child.executor_id)
            if inner is not None and inner.has_hooks:
                instances = instances_of(self._thread, child, inner)
                yield from self._levels(inner, child.position, instances, f"{path}{child.executor_id}/")

    def _here(self, position: Position) -> Iterator[_Here]:
        return self._levels(self._compiled, position, self._thread.executors)

    async def remember(self, after: Position) -> None:
        """Save the memory of every executor with hooks, whether it ran or not: they may share objects."""
        _own_children(after, self._compiled)
        for compiled, position, executors, path in self._here(after):
            saved = dict(position.saved)
            for executor_id in compiled.hooked:
                if executor_id in executors:
                    saved[executor_id] = await self.take(executors[executor_id], position, path)
            position.saved = saved

    async def restore_here(self) -> None:
        """Restore every executor with hooks from the position, whether it ran or not: they may share objects.

        Tries all of them, then raises the first error; the thread then stays dirty.
        """
        errors = []
        for compiled, position, executors, _ in self._here(self._thread.position):
            for executor_id in compiled.hooked:
                if executor_id in executors or executor_id in position.saved:
                    try:
                        await self._restore(executors, executor_id, position.saved.get(executor_id), position)
                    except CheckpointHookFailed as error:
                        errors.append(error)
        if errors:
            raise errors[0]
        self._thread.is_dirty = False

    async def _restore(self, executors: dict[str, Executor], executor_id: str, frozen: Any, position: Position) -> None:
        """An executor without memory in the position is recreated."""
        if frozen is None:
            executors.pop(executor_id, None)
        else:
            await self.put_back(executors[executor_id], frozen, position)

    async def put_back_in(self, level: Level, executor_id: str, saved: Any) -> Executor:
        """The executor as it was after a delivery, or before the superstep if `saved` is None."""
        frozen = level.position.saved.get(executor_id) if saved is None else saved
        await self._restore(level.executors, executor_id, frozen, level.position)
        return level.executors[executor_id]

    async def restore_all(self, position: Position, saved: Mapping[str, Any]) -> None:
        """Move the thread to another position. If a hook fails, the thread keeps its old position."""
        thread = self._thread
        position.saved = dict(saved)
        for inner in every_level(position):
            inner.saved = {key: self._freeze(value, key) for key, value in inner.saved.items()}
        before, thread.position = thread.position, position
        children, thread.children = thread.children, {}
        for _, level, executors, _ in self._here(position):
            for executor_id in level.saved:
                executors[executor_id]  # created now, to be restored with the others
        try:
            await self.restore_here()
        except BaseException:
            thread.position, thread.children, thread.is_dirty = before, children, True
            raise
        thread.journal = {}
        thread.records = {}


def _own_children(after: Position, compiled: Compiled) -> None:
    """Copy the positions of children that did not run: the position before shares them and must not change."""
    hooked = {key: child for key, child in after.children.items() if compiled.children[child.executor_id].has_hooks}
    if hooked:
        own = {key: child.at(child.position.successor()) for key, child in hooked.items()}
        after.children = {**after.children, **own}
        for child in own.values():
            _own_children(child.position, compiled.children[child.executor_id])
