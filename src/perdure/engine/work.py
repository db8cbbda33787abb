"""The work of a step: a function and its arguments, called in the event loop or, if it is not async, in a thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.cancelling import to_its_end
from perdure.graph.function_executor import is_async
from perdure.graph.policy import FailurePolicy


@dataclass(frozen=True)
class Work:
    function: Callable[..., Any]
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    policy: FailurePolicy

    async def done(self) -> Any:
        return await self._call(self.function)

    async def done_instead(self) -> Any:
        """By the fallback, which gets the same arguments."""
        return await self._call(self.policy.on_error)

    async def _call(self, function: Callable[..., Any]) -> Any:
        if is_async(function):
            return await function(*self.arguments, **self.keywords)
        # A thread cannot be cancelled, so it is waited for: its side effects must not outlive the delivery.
        returned, cancelled = await to_its_end(asyncio.to_thread(self._call_in_thread, function))
        if cancelled is not None:
            raise cancelled
        return await returned if inspect.isawaitable(returned) else returned

    def _call_in_thread(self, function: Callable[..., Any]) -> Any:
        try:
            return function(*self.arguments, **self.keywords)
        except StopIteration as error:  # a future cannot hold one: whoever waits for it would wait for ever
            raise RuntimeError(f"{function!r} raised StopIteration: {error!r}") from error
