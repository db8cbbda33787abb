"""ScriptedExecutor: stands where an agent or a service would, and says what the test wrote down."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from perdure.engine.context import DeliveryContext
from perdure.engine.hooks import HookContext
from perdure.graph.context import WorkflowContext
from perdure.graph.executor import Executor, HandlerTable
from perdure.graph.handlers import Handler, Returns
from perdure.graph.types import flatten_union


class ScriptOver(AssertionError):
    """A scripted executor got a message that its script has no reply for."""


@dataclass(frozen=True)
class Ask:
    """A reply that asks first: `Ask("may I?", bool)`. Whatever is answered is the reply; or, with `then`, what that
    function makes of the answer."""

    question: Any
    response_type: Any
    then: Callable[[Any], Any] | None = None


@dataclass
class _Past:
    """What all copies of one executor share: what this process saw of them, whichever thread they serve."""

    received: list[tuple[str, Any]] = field(default_factory=list)
    """Thread and message."""
    raised: dict[str, dict[str, set[int]]] = field(default_factory=dict)
    """Thread -> sub-workflow in it -> places of the script that have raised."""

    def raised_in(self, thread_id: str, child: str) -> set[int]:
        return self.raised.setdefault(thread_id, {}).setdefault(child, set())


class ScriptedExecutor(Executor):
    """Answers each message with the next reply: `ScriptedExecutor("reviewer", replies=["good"], input=str)`.

    A reply that is a value is sent on; with `workflow_output=` it is yielded instead, with `output=` too it is both.
    An exception is raised, once in a thread: whatever is tried again gets the next reply. A function is called with the
    message, and gives the reply; in place of the list it answers all messages. `Ask` asks. None is no reply.

    Every thread goes through the script by itself, and so does every sub-workflow. The place is saved with the
    checkpoint, so a resumed run goes on there. Raises ScriptOver when a message comes after the last reply.
    """

    def __init__(
        self,
        id: str,
        replies: Sequence[Any] | Callable[[Any], Any],
        *,
        input: Any = object,
        output: Any = None,
        workflow_output: Any = None,
        **policy: Any,
    ) -> None:
        super().__init__(id, defer_discovery=True, **policy)
        if isinstance(replies, str) or not (callable(replies) or isinstance(replies, Sequence)):
            raise TypeError(f"ScriptedExecutor {id!r}: replies= expects a list or a function, got {replies!r}.")
        self._script = replies
        self._sends = output is not None or workflow_output is None
        self._yields = workflow_output is not None
        sent = _inferred(replies) if self._sends and output is None else _spread(output)
        self.table = HandlerTable(id, _handlers(replies, input, sent, _spread(workflow_output)))
        self._place = 0
        self._past = _Past()

    def fresh(self) -> Executor:
        made = cast(ScriptedExecutor, super().fresh())
        made._past = self._past
        return made

    # ------------------------------------------------------------ what a test looks at

    @property
    def received(self) -> list[Any]:
        """Every message that it was handed in this process, attempts that failed included; in all threads."""
        return [message for _, message in self._past.received]

    def received_in(self, thread_id: str) -> list[Any]:
        """The same, of one thread."""
        return [message for thread, message in self._past.received if thread == thread_id]

    # ------------------------------------------------------------ what the engine calls

    async def on_checkpoint_save(self, ctx: HookContext) -> dict[str, Any]:
        raised = self._past.raised.get(ctx.thread_id, {})
        return {"place": self._place, "raised": {child: sorted(places) for child, places in raised.items() if places}}

    async def on_checkpoint_restore(self, state: dict[str, Any], ctx: HookContext) -> None:
        self._place = state["place"]
        for child, places in state["raised"].items():  # never forgotten: an error that is undone is still past
            self._past.raised_in(ctx.thread_id, child).update(places)

    async def reply(self, message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        self._past.received.append((ctx.thread_id, message))
        raised = self._past.raised_in(ctx.thread_id, _child_of(ctx))
        place, scripted = self._next(message, raised)
        try:
            await self._say(await _resolved(scripted, message), ctx)
        except Exception:
            raised.add(place)
            raise

    def _next(self, message: Any, raised: set[int]) -> tuple[int, Any]:
        # The engine puts an executor back when its delivery fails: to the reply that failed it, which is past.
        while self._place in raised:
            self._place += 1
        place = self._place
        self._place += 1
        if callable(self._script):
            return place, self._script
        if place >= len(self._script):
            raise ScriptOver(
                f"ScriptedExecutor {self.id!r} has {len(self._script)} replies, and got one message more: {message!r}. "
                "Add a reply, or pass a function as replies= to answer all messages."
            )
        return place, self._script[place]

    async def _say(self, reply: Any, ctx: WorkflowContext[Any, Any]) -> None:
        if isinstance(reply, BaseException) or _is_error(reply):
            raise reply
        if isinstance(reply, Ask):
            await ctx.request_info(reply.question, reply.response_type)
            return
        if reply is None:
            return
        if self._sends:
            await ctx.send_message(reply)
        if self._yields:
            await ctx.yield_output(reply)

    async def go_on(self, question: Any, answer: Any, ctx: WorkflowContext[Any, Any]) -> None:
        asked = [] if callable(self._script) else [one for one in self._script if isinstance(one, Ask)]
        then = next((one.then for one in asked if one.question == question and one.then is not None), None)
        await self._say(answer if then is None else await _resolved(then, answer), ctx)


def _child_of(ctx: WorkflowContext[Any, Any]) -> str:
    """Which sub-workflow it serves, the same if that is started anew. Only the engine's own context knows."""
    child_id = cast(DeliveryContext, ctx).delivery.lane.level.child_id
    return "" if child_id is None else str(child_id)


async def _resolved(scripted: Any, message: Any) -> Any:
    """The reply itself, or what the function that stands for it gives."""
    if not callable(scripted) or _is_error(scripted):
        return scripted
    given = scripted(message)
    return await given if inspect.isawaitable(given) else given


def _is_error(reply: Any) -> bool:
    return isinstance(reply, type) and issubclass(reply, BaseException)


# ---------------------------------------------------------------- types


def _spread(annotation: Any) -> tuple[Any, ...]:
    return () if annotation is None else tuple(flatten_union(annotation))


def _inferred(replies: Any) -> tuple[Any, ...]:
    """The types of what is sent, where all replies say so: edges are checked by them, and values of them stored."""
    if callable(replies):
        return ()
    said = [one for one in replies if one is not None and not isinstance(one, BaseException) and not _is_error(one)]
    unclear = (Ask, list, tuple, dict, set, frozenset)
    if any(callable(one) or isinstance(one, unclear) for one in said):
        return ()
    return tuple(dict.fromkeys(map(type, said)))


def _handlers(replies: Any, input: Any, sent: tuple[Any, ...], yielded: tuple[Any, ...]) -> list[Handler]:
    def handler(name: str, function: Any, message_type: Any, request_type: Any = None) -> Handler:
        return Handler(name, function, message_type, request_type, sent, yielded, True, Returns.NOTHING)

    scripted = [] if callable(replies) else replies
    pairs = {(type(one.question), one.response_type): None for one in scripted if isinstance(one, Ask)}
    if callable(replies) or any(callable(one) for one in scripted):
        pairs[object, object] = None  # a function may ask anything
    return [
        handler("reply", ScriptedExecutor.reply, input),
        *(handler("go_on", ScriptedExecutor.go_on, response, request) for request, response in pairs),
    ]
