"""Fields of events: of failures, of requests, and what other events raise."""

from typing import Any, Never

from flows import (
    Executor,
    InMemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowErrorDetails,
    WorkflowEvent,
    handler,
)

FIELDS = ("request_id", "source_executor_id", "request_type", "response_type")


class Fails(Executor):
    @handler
    async def take(self, message: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.add_event(WorkflowEvent("intermediate", data="forged"))
        raise KeyError(message)


async def of_a_failure() -> Any:
    workflow = WorkflowBuilder(start_executor=Fails("fails"), checkpoint_storage=InMemoryCheckpointStorage()).build()
    events: list[Any] = []
    try:
        async for event in workflow.run("missing", stream=True):
            events.append(event)
    except KeyError as error:
        raised = str(error)
    [failure] = [event for event in events if event.type == "executor_failed"]
    [warning] = [event.data for event in events if event.type == "warning"]
    details = failure.data
    return [
        [raised, isinstance(details, WorkflowErrorDetails), details == failure.details, details.error_type],
        warning.startswith("Executor 'fails' attempted to emit a 'intermediate' event directly, which is reserved for"),
        [event.data for event in events if event.type == "failed"],
        [event.state.value for event in events if event.state is not None],
    ]


def of_requests() -> Any:
    request = WorkflowEvent.request_info("1", "asks", {"key": 1}, str)
    others = [WorkflowEvent("custom", data=1), WorkflowEvent.started(), WorkflowEvent.executor_invoked("a")]
    errors = []
    for event in others:
        for name in FIELDS:
            try:
                getattr(event, name)
            except RuntimeError as error:
                errors.append(
                    f"{name} is only available for request_info events, got type={event.type!r}" in str(error)
                )
    copied = WorkflowEvent.from_dict(request.to_dict())
    values = [[event.request_id, event.source_executor_id, event.response_type.__name__] for event in (request, copied)]
    try:
        WorkflowEvent.from_dict({})
    except KeyError as error:
        return [errors, values, repr(request), "Missing 'data' field" in str(error)]


def by_hand() -> Any:
    details = WorkflowErrorDetails.from_exception(ValueError("wrong"), executor_id="a", extra={"key": 1})
    event = WorkflowEvent.executor_failed("a", details)
    return [event.data == details == event.details, WorkflowEvent.failed(details).data, details.extra, details.message]


async def main() -> Any:
    return {"failure": await of_a_failure(), "requests": of_requests(), "by hand": by_hand()}
