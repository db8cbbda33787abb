"""Function workflows: `@workflow` makes an async function with recorded steps a workflow, and `as_agent` an agent."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import msgspec

from perdure.agents.base import RecordingAgent
from perdure.agents.conversation.content import Content
from perdure.agents.conversation.message import AgentSession, Message, as_messages
from perdure.agents.conversation.response import AgentResponse, as_agent_message, as_response
from perdure.agents.recording import current_delivery, emit_update, emit_updates_to, is_streaming
from perdure.checkpoints.migration.migrations import AnyMigration
from perdure.clock import Clock
from perdure.engine.delivery.lane import current_context
from perdure.engine.functions import FunctionNode, get_run_context, read_function
from perdure.engine.run.request import accepts, check_storage
from perdure.engine.run.run import View, WorkflowRunResult
from perdure.errors import InvalidRun
from perdure.events import WorkflowEvent
from perdure.names import check_identifier
from perdure.workflows.agent import WorkflowAgent, _find_answers
from perdure.workflows.agent_output import REQUEST_INFO
from perdure.workflows.builder import WorkflowBuilder
from perdure.workflows.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")

_BUILT = {"_graph", "_durability", "_compiled", "_live", "id", "start_executor_id", "max_iterations"} | {
    "graph_signature",
    "graph_signature_hash",
}
"""What a workflow has once its graph is built."""


class FunctionalWorkflow(Workflow, Generic[P, R]):
    """The result of `@workflow`: a workflow that runs at once. `build` makes another one, with its own threads."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, R]],
        *,
        name: str | None = None,
        description: str | None = None,
        checkpoint_storage: Any = None,
        allowed_types: Iterable[type | str] = (),
        migrations: Iterable[AnyMigration] = (),
        clock: Clock | None = None,
    ) -> None:
        check_identifier("name", name)
        if checkpoint_storage is not None:
            check_storage(checkpoint_storage)
        self.function = function
        self._shape = read_function(function)
        self.name = name or self._shape.name
        self.description = description if description is not None else inspect.getdoc(function)
        self._storage = checkpoint_storage
        self.allowed_types = tuple(allowed_types)
        self._migrations = tuple(migrations)
        self._clock = clock
        functools.update_wrapper(self, function, updated=())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Builds the graph at its first use: types that the module defines after the function exist by then."""
            if name not in _BUILT or name in self.__dict__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self._set_up()
            return getattr(self, name)

    def _set_up(self) -> None:
        graph = WorkflowBuilder(
            name=self.name, description=self.description, start_executor=FunctionNode(self._shape, self.name)
        ).graph()
        super().__init__(
            graph, self._storage, allowed_types=self.allowed_types, migrations=self._migrations, clock=self._clock
        )

    def build(
        self,
        checkpoint_storage: Any = None,
        *,
        allowed_types: Iterable[type | str] | None = None,
        migrations: Iterable[AnyMigration] | None = None,
        clock: Clock | None = None,
    ) -> FunctionalWorkflow[P, R]:
        """A new workflow of this function, with its own threads."""
        built = FunctionalWorkflow(
            self.function,
            name=self.name,
            description=self.description,
            checkpoint_storage=checkpoint_storage if checkpoint_storage is not None else self._storage,
            allowed_types=self.allowed_types if allowed_types is None else allowed_types,
            migrations=self._migrations if migrations is None else migrations,
            clock=clock or self._clock,
        )
        built._set_up()
        return built

    def as_agent(  # type: ignore[override]  # another agent: a function takes any input
        self, name: str | None = None, *, description: str | None = None, context_providers: Any = None, **kwargs: Any
    ) -> FunctionalWorkflowAgent:
        """The function as an agent, whatever its parameter: each session is a thread of it."""
        return FunctionalWorkflowAgent(
            self, name=name, description=description, context_providers=context_providers, **kwargs
        )

    def _view(self, *, is_streaming: bool) -> View:
        """Without the events of the graph around the function. The log has them, for followers."""

        def show(event: WorkflowEvent) -> Sequence[WorkflowEvent]:
            is_around = event.type.startswith("executor_") and event.executor_id == self.name and event.child_id is None
            return () if is_around or event.type.startswith("superstep_") else (event,)

        return show

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside a running workflow: call the function as a part of it, its steps recorded with the caller's."""
        context = current_context.get()
        if context is None:
            raise InvalidRun(
                f"Workflow {self.name!r} was called like a function outside of a workflow, where its steps are not "
                f"recorded. Use `await {self.name}.run(message)`."
            )
        if self._shape.context is not None and len(args) + len(kwargs) < self._shape.parameters:
            run_context: Any = get_run_context()
            args = (*args, run_context)  # type: ignore[assignment]  # the caller omitted the context
        return await self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"FunctionalWorkflow({self.name!r})"


class FunctionalWorkflowAgent(RecordingAgent):
    """`function_workflow.as_agent()`: a message is the function's argument, its result is the response.

    A session is a thread of the workflow. Requests of the function are approval requests, which `responses=` answers by
    their ids. `context_providers` are only kept.
    """

    keeps_conversation = True
    REQUEST_INFO_FUNCTION_NAME = REQUEST_INFO

    def __init__(
        self,
        workflow: FunctionalWorkflow[Any, Any],
        *,
        name: str | None = None,
        id: str | None = None,
        description: str | None = None,
        context_providers: Any = None,
        **_: Any,
    ) -> None:
        name = name or workflow.name
        described = workflow.description if description is None else description
        super().__init__(name, id=id or f"FunctionalWorkflowAgent_{name}", description=described)
        self.workflow = workflow
        self.context_providers = context_providers
        self.pending_requests: dict[str, WorkflowEvent] = {}
        """The requests of the last run, by their ids."""

    def run(
        self, messages: Any = None, *, stream: bool = False, session: AgentSession | None = None, **kwargs: Any
    ) -> Any:
        """Call the function with `messages`, or answer its requests: `responses=`. Other arguments are those of its
        `run`. A function that takes neither the value nor `list[Message]` gets its text."""
        try:
            sent = as_messages(messages)
        except TypeError:  # a value of the function's own type
            sent = [Message("user", str(messages))]
        if messages is not None and not _find_answers(sent):
            if kwargs.get("checkpoint_id") is not None:
                raise InvalidRun(
                    "The agent takes messages or a checkpoint_id, not both: restore first, then send them."
                )
            kwargs["argument"] = self._argument(messages, sent)
        options = {key: value for key, value in kwargs.items() if value is not None and key != "response_format"}
        if not stream:
            return super().run(sent, session=session, **options)
        return super().run(sent, stream=True, session=session, **options)

    # A turn is that of a workflow of messages.
    _run: Any = WorkflowAgent._run
    _run_inside: Any = WorkflowAgent._run_inside

    def _argument(self, value: Any, messages: list[Message]) -> Any:
        texts = "\n".join(message.text for message in messages)
        return next((each for each in (value, messages, texts) if accepts(self.workflow.graph, each)), value)

    async def _take_turn(
        self, sent: list[Message], options: Mapping[str, Any], before: int, session: AgentSession | None
    ) -> tuple[WorkflowRunResult, AgentResponse]:
        run_options, answers = dict(options), _find_answers(sent)
        argument = run_options.pop("argument", None)
        if answers:
            run_options["responses"] = answers
        with emit_updates_to(None):  # the response has what agents in the function say
            run = self.workflow.new_run(argument if sent and not answers else None, **run_options)
            result = await run.execute(is_streaming=is_streaming())
        self.pending_requests = {str(event.request_id): event for event in result.get_request_info_events()}
        responses = [self._as_response(output) for output in result.get_outputs()]
        messages = [message for response in responses for message in response.messages]
        requests = tuple(map(_as_request, self.pending_requests.values()))
        if requests:
            messages.append(Message("assistant", requests, self.name))
        response = AgentResponse(
            messages=tuple(messages),
            response_id=result.run_id,
            agent_id=self.id,
            value=next((response.value for response in responses), None),
        )
        for update in response.to_updates():
            emit_update(update)
        return result, response

    def _as_response(self, output: Any) -> AgentResponse:
        is_value = isinstance(output, list) and all(isinstance(item, str) for item in output)
        try:
            return as_response(None if is_value else output, self.name)
        except TypeError:
            return AgentResponse(messages=(as_agent_message(str(output), self.name),), value=output)


def _as_request(event: WorkflowEvent) -> Content:
    request_id, data = str(event.request_id), event.data
    if isinstance(data, Content) and data.user_input_request:  # that of an agent
        id_field = "call_id" if data.type == "function_call" else "id"
        return msgspec.structs.replace(data, **{id_field: request_id})
    try:
        plain = msgspec.to_builtins(data)
    except (TypeError, ValueError):
        plain = str(data)
    arguments = {"request_id": request_id, "data": plain}
    call = Content.from_function_call(request_id, REQUEST_INFO, arguments=arguments)
    if current_delivery() is not None:  # in another workflow, which answers a call with a result of any type
        return msgspec.structs.replace(call, user_input_request=True)
    request = Content.from_function_approval_request(request_id, call)
    return msgspec.structs.replace(request, additional_properties={"request_id": request_id})


FunctionalWorkflowDefinition = FunctionalWorkflow
"""The result of `@workflow` may have to be built first: here `build` returns another one of its kind."""


@overload
def workflow(func: Callable[P, Coroutine[Any, Any, R]]) -> FunctionalWorkflow[P, R]: ...
@overload
def workflow(
    func: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    checkpoint_storage: Any = None,
    migrations: Iterable[AnyMigration] = (),
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], FunctionalWorkflow[P, R]]: ...
def workflow(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    checkpoint_storage: Any = None,
    migrations: Iterable[AnyMigration] = (),
) -> Any:
    """Make an async function a workflow: `@workflow` or `@workflow(name="triage", checkpoint_storage=...)`.

    It takes the message and optionally a `RunContext`. The engine may run it again from the top at any time: code
    outside of steps must be deterministic and without side effects.
    """

    make: Callable[..., Any] = functools.partial(
        FunctionalWorkflow,
        name=name,
        description=description,
        checkpoint_storage=checkpoint_storage,
        migrations=migrations,
    )
    return make if func is None else make(func)
