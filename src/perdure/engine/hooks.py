"""Executors' own memory: calling `on_checkpoint_save` and `on_checkpoint_restore`, with or without `ctx`."""

from __future__ import annotations

import inspect
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any

from perdure.engine.position import Position
from perdure.errors import CheckpointHookFailed
from perdure.graph.executor import Executor
from perdure.isolation import isolated


class HookContext:
    """What a hook that takes `ctx` may use: the executor's private state, and the shared one."""

    __slots__ = ("_position", "executor_id", "thread_id")

    def __init__(self, position: Position, executor_id: str, thread_id: str) -> None:
        self._position = position
        self.executor_id = executor_id
        self.thread_id = thread_id

    @property
    def private(self) -> MutableMapping[str, Any]:
        # Positions share their parts until one of them is changed: this one gets its own.
        own: dict[str, Any] = isolated(self._position.private.get(self.executor_id, {}))
        self._position.private = {**self._position.private, self.executor_id: own}
        return own

    def get_state(self, key: str, default: Any = None) -> Any:
        return isolated(self._position.state.get(key, default))

    def set_state(self, key: str, value: Any) -> None:
        self._position.state = {**self._position.state, key: isolated(value)}


@lru_cache(1024)
def _takes_context(function: Any, without: int) -> bool:
    return len(inspect.signature(function).parameters) > without


async def save(executor: Executor, position: Position, thread_id: str) -> dict[str, Any]:
    """The executor's dict. Raises CheckpointHookFailed, naming it, if the hook fails or returns something else."""
    hook = type(executor).on_checkpoint_save
    extra = (HookContext(position, executor.id, thread_id),) if _takes_context(hook, 1) else ()
    try:
        saved: Any = await hook(executor, *extra)
    except Exception as error:
        raise CheckpointHookFailed(executor.id, "on_checkpoint_save", repr(error)) from error
    if not isinstance(saved, dict):
        raise CheckpointHookFailed(executor.id, "on_checkpoint_save", f"it returned {saved!r}, expected a dict")
    return saved


async def restore(executor: Executor, saved: dict[str, Any], position: Position, thread_id: str) -> None:
    hook = type(executor).on_checkpoint_restore
    extra = (HookContext(position, executor.id, thread_id),) if _takes_context(hook, 2) else ()
    try:
        await hook(executor, saved, *extra)
    except Exception as error:
        raise CheckpointHookFailed(executor.id, "on_checkpoint_restore", repr(error)) from error
