"""The stream of a run's events, and `run_sync`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from inspect import isawaitable
from typing import Any, ClassVar, Generic, Self, TypeVar, cast, overload

from perdure.errors import InvalidRun, NotInAsyncCode

T = TypeVar("T")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
OtherItemT = TypeVar("OtherItemT")
OtherResultT = TypeVar("OtherResultT")

Start = Callable[[Callable[[Any], None]], Coroutine[Any, Any, ResultT]]
"""Starts the work. Its argument is a function that takes each event."""


class StreamWork(AsyncIterator[ItemT], Generic[ItemT, ResultT]):
    """A run as the source of a stream: its events as they happen, and its result. It begins when it is first used."""

    def __init__(self, start: Start[ResultT], interrupt: Callable[[], bool] = lambda: False) -> None:
        self._start = start
        self._interrupt = interrupt
        self._task: asyncio.Task[ResultT] | None = None
        self.items: list[ItemT] = []
        self.taken = 0
        """How many items were iterated."""
        self._news = asyncio.Event()
        """Set by an item, and by the end."""

    def begin(self) -> asyncio.Task[ResultT]:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._start(self._put))
            self._task.add_done_callback(lambda _: self._news.set())
        return self._task

    def _put(self, item: ItemT) -> None:
        self.items.append(item)
        self._news.set()

    async def __anext__(self) -> ItemT:
        """The next event. At the end raises StopAsyncIteration, or the error of the work. Cancelled, it ends the
        work."""
        task = self.begin()
        while self.taken == len(self.items):
            if task.done():
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error
                raise StopAsyncIteration
            self._news.clear()
            try:
                await self._news.wait()
            except asyncio.CancelledError:
                await self.aclose()
                raise
        self.taken += 1
        return self.items[self.taken - 1]

    async def get_final_response(self) -> ResultT:
        """The result, after the work has ended. Raises the error of the work."""
        task = self.begin()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if task.cancelled():
            raise InvalidRun("The stream was closed before its run had begun. Nothing was run; call run() again.")
        return task.result()

    def cancel(self) -> None:
        """Cancel the work, if it has begun and has not ended."""
        task = self._task
        if task is None or task.done() or task.get_loop().is_closed():
            return
        if not self._interrupt():  # it does not own its thread yet, so nothing needs an orderly end
            task.cancel()

    async def aclose(self) -> None:
        """Cancel the work and wait until it has cleaned up."""
        self.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # retrieved: a caller that closes early does not want it


class ResponseStream(AsyncIterable[ItemT], Generic[ItemT, ResultT]):
    """Iterate it for events, then ask it for the result: `async for event in stream`, `await
    stream.get_final_response()`. `await stream` returns the stream itself.

    Leaving the iteration early cancels the run; `aclose()`, or `async with`, also waits until it has ended. A stream
    of your own is made from an async iterable, or from an awaitable of one. Its result is what `finalizer` makes of all
    items; without a finalizer the result of the source, or the list of the items.
    """

    made_by: ClassVar[Callable[..., Any] | None] = None
    """Makes streams of a program's own items, where a framework accepts only those of its class."""

    def __new__(cls, stream: Any = None, **options: Any) -> Any:
        if cls.made_by is not None and cls is ResponseStream and not isinstance(stream, StreamWork | ResponseStream):
            return cls.made_by(stream, **options)
        return super().__new__(cls)

    def __init__(
        self,
        stream: AsyncIterable[ItemT] | Awaitable[AsyncIterable[ItemT]],
        *,
        finalizer: Callable[[Sequence[ItemT]], ResultT | Awaitable[ResultT]] | None = None,
        transform_hooks: Iterable[Callable[[ItemT], Any]] | None = None,
        cleanup_hooks: Iterable[Callable[[], Any]] | None = None,
        result_hooks: Iterable[Callable[[ResultT], Any]] | None = None,
    ) -> None:
        self._source: Any = stream
        self._iterator: AsyncIterator[Any] | None = None
        self._finalizer = finalizer
        self._transforms = list(transform_hooks or ())
        self._cleanups = list(cleanup_hooks or ())
        self._result_hooks = list(result_hooks or ())
        self._pull_contexts: list[Callable[[], AbstractContextManager[Any]]] = []
        self._map: Callable[[Any], Any] | None = None
        """Makes the items of this stream of one of its source."""
        self._mapped: deque[ItemT] = deque()
        self._updates: list[ItemT] = []
        self._is_consumed = False
        self._results: list[ResultT] = []
        """The result, once it is known."""

    @property
    def updates(self) -> Sequence[ItemT]:
        """The items so far, before the hooks of `with_transform_hook`."""
        items: list[ItemT] = self._source.items if self._has_plain_work else self._updates
        return items

    @property
    def _has_plain_work(self) -> bool:
        """Whether nothing stands between the run and the consumer, so that the result needs no iteration."""
        is_changed = self._transforms or self._pull_contexts or self._map or self._finalizer
        return isinstance(self._source, StreamWork) and not is_changed

    def __aiter__(self) -> AsyncIterator[ItemT]:
        if isinstance(self._source, StreamWork):
            _ = self._source.begin()
        return _Iteration(self)

    async def __anext__(self) -> ItemT:
        while not self._mapped:
            try:
                item = await self._pull()
            except StopAsyncIteration:
                self._is_consumed = True
                _ = await self.get_final_response()
                raise
            except Exception:
                await self._clean_up()
                raise
            if self._map is None:
                return await self._transform(item)
            self._mapped.extend(await _resolve(self._map(item)))
        return await self._transform(self._mapped.popleft())

    async def _pull(self) -> Any:
        with ExitStack() as contexts:
            for enter in self._pull_contexts:
                contexts.enter_context(enter())
            if self._iterator is None:
                if not hasattr(self._source, "__aiter__"):
                    self._source = await self._source
                self._iterator = aiter(self._source)
            return await anext(self._iterator)

    async def _transform(self, item: ItemT) -> ItemT:
        if not self._has_plain_work:
            self._updates.append(item)
        for transform in self._transforms:
            changed = await _resolve(transform(item))
            item = item if changed is None else changed
        return item

    async def _clean_up(self) -> None:
        hooks, self._cleanups = self._cleanups, []
        for hook in hooks:
            await _resolve(hook())

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self

    async def get_final_response(self) -> ResultT:
        """The result, after the end. Raises the error of the run. Iterates over the items that were not taken yet."""
        if not (self._results or self._is_consumed or self._has_plain_work):
            async for _ in self:
                pass
        if not self._results:
            source, result = self._source, cast("Any", None)
            if self._has_plain_work:
                result = await source.get_final_response()
            await self._clean_up()
            if self._finalizer is not None:
                result = await _resolve(self._finalizer(self._updates))
            elif not self._has_plain_work:
                result = await source.get_final_response() if hasattr(source, "get_final_response") else self._updates
            for hook in self._result_hooks:
                changed = await _resolve(hook(result))
                result = result if changed is None else changed
            self._results.append(result)
        return self._results[0]

    def map(
        self,
        transform: Callable[[ItemT], OtherItemT | Awaitable[OtherItemT]],
        finalizer: Callable[[Sequence[OtherItemT]], OtherResultT | Awaitable[OtherResultT]],
    ) -> ResponseStream[OtherItemT, OtherResultT]:
        """A stream of other items, each made of one of this stream, with a result of its own."""

        async def make_one(item: ItemT) -> list[Any]:
            return [await _resolve(transform(item))]

        return self.flat_map(make_one, finalizer)

    def flat_map(
        self,
        transform: Callable[[ItemT], Iterable[OtherItemT] | Awaitable[Iterable[OtherItemT]]],
        finalizer: Callable[[Sequence[OtherItemT]], OtherResultT | Awaitable[OtherResultT]],
    ) -> ResponseStream[OtherItemT, OtherResultT]:
        """`map` with any number of items for each one of this stream."""
        stream: ResponseStream[OtherItemT, OtherResultT] = ResponseStream(cast("Any", self), finalizer=finalizer)
        stream._map = transform
        return stream

    def with_finalizer(
        self, finalizer: Callable[[Sequence[ItemT]], OtherResultT | Awaitable[OtherResultT]]
    ) -> ResponseStream[ItemT, OtherResultT]:
        """A stream of the same items with another result."""
        return ResponseStream(self, finalizer=finalizer)

    @classmethod
    def from_awaitable(cls, awaitable: Awaitable[Any]) -> ResponseStream[Any, Any]:
        """A stream of the items and with the result of a stream that must be awaited first."""
        made_by: Any = cls.made_by
        return cls(awaitable) if made_by is None else made_by.from_awaitable(awaitable)

    def with_transform_hook(self, hook: Callable[[ItemT], Any]) -> Self:
        """Call `hook` with each item that is iterated; a result that is not None takes its place."""
        self._transforms.append(hook)
        return self

    def with_result_hook(self, hook: Callable[[ResultT], Any]) -> Self:
        """Call `hook` with the result; what it returns, if not None, takes its place."""
        self._result_hooks.append(hook)
        self._results.clear()
        return self

    def with_cleanup_hook(self, hook: Callable[[], Any]) -> Self:
        """Call `hook` once after the last item, or after an error."""
        self._cleanups.append(hook)
        return self

    def with_pull_context_manager(self, cm_factory: Callable[[], AbstractContextManager[Any]]) -> Self:
        """Wait for each item of the source inside of such a context, for example of a tracing span."""
        self._pull_contexts.append(cm_factory)
        return self

    with_update_transform = with_transform_hook
    with_result_transform = with_result_hook

    def _cancel(self) -> None:
        """Cancel the work behind this stream, if it has begun and has not ended."""
        if isinstance(self._source, StreamWork):
            self._source.cancel()
        elif isinstance(self._source, ResponseStream):
            self._source._cancel()

    async def aclose(self) -> None:
        """Cancel the work and wait until it has cleaned up."""
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()

    close = aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _resolve(value: Any) -> Any:
    """The value, awaited if it is awaitable."""
    return await value if isawaitable(value) else value


class _Iteration(AsyncIterator[ItemT]):
    """One `async for`. Discarding it before the end, as `break` does, ends the work."""

    def __init__(self, stream: ResponseStream[ItemT, Any]) -> None:
        self._stream = stream

    async def __anext__(self) -> ItemT:
        stream = self._stream
        source = stream._source
        if stream._has_plain_work:  # the way without hooks takes 2 us less
            if source.taken < len(source.items):
                source.taken += 1
                return cast(ItemT, source.items[source.taken - 1])
            with suppress(Exception):  # the end, or an error, which the stream itself raises after its hooks
                return cast(ItemT, await source.__anext__())
        return await stream.__anext__()

    def __del__(self) -> None:
        # The cleanup of an async generator would run later, but a run that starts in the next line must find this one
        # ending, not running.
        self._stream._cancel()


@overload
def run_sync(work: ResponseStream[Any, T]) -> T: ...
@overload
def run_sync(work: Awaitable[T]) -> T: ...
def run_sync(work: Any) -> Any:
    """Run to the end and return the result: `run_sync(workflow.run("hello"))`. For scripts.

    Raises NotInAsyncCode where an event loop runs already, as in a notebook: `await` it there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_await(work))
    if isinstance(work, Coroutine):
        work.close()  # one that is never awaited would warn as well
    raise NotInAsyncCode(
        "run_sync() was called where an event loop is running, as in a notebook or an async function. Nothing was run. "
        "Use `await` instead: result = await workflow.run(...)."
    )


async def _await(work: Any) -> Any:
    return await (work.get_final_response() if isinstance(work, ResponseStream) else work)
