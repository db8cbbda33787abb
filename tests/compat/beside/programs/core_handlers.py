"""The words of errors of handlers and functions, and the types that an executor takes."""

from typing import Any, Never, TypeVar

from flows import (
    Executor,
    FunctionExecutor,
    WorkflowContext,
    WorkflowMessage,
    executor,
    handler,
    response_handler,
)

T = TypeVar("T")

SIGNATURE = "must have (self, message: T, ctx: WorkflowContext[U, V]). Got 4 parameters"
ANSWER = "must have (self, original_request, response, ctx). Got"
CONTEXT = "parameter 'ctx' must be annotated as WorkflowContext, WorkflowContext[T], or WorkflowContext[T, U]"


async def many(self: Any, message: str, ctx: WorkflowContext, more: int) -> None: ...
async def untyped(self: Any, message, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]  # the mistake
async def bare(self: Any, message: str, ctx) -> None: ...  # type: ignore[no-untyped-def]  # the mistake
async def other(self: Any, message: str, ctx: int) -> None: ...
async def number(self: Any, message: str, ctx: WorkflowContext[5]) -> None: ...  # type: ignore[valid-type]  # the mistake
async def yields_number(self: Any, message: str, ctx: WorkflowContext[str, 5]) -> None: ...  # type: ignore[valid-type]  # the mistake
async def variable(self: Any, message: list[T], ctx: WorkflowContext) -> None: ...
async def sends_variable(self: Any, message: str, ctx: WorkflowContext[T]) -> None: ...
async def answer(self: Any, request: str, response: str) -> None: ...
async def long_answer(self: Any, request: str, response: str, ctx: WorkflowContext, more: int) -> None: ...
async def untyped_request(self: Any, request, response: str, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]  # the mistake
async def bare_answer(self: Any, request: str, response: str, ctx) -> None: ...  # type: ignore[no-untyped-def]  # the mistake
async def open_handler(self: Any, message, ctx) -> None: ...  # type: ignore[no-untyped-def]  # the mistake
async def function(message, ctx: WorkflowContext) -> None: ...  # type: ignore[no-untyped-def]  # the mistake
async def nothing() -> None: ...
async def wrong_context(message: str, ctx: str) -> None: ...


def words(make: Any, *phrases: str) -> Any:
    try:
        make()
    except (ValueError, NameError) as error:
        kinds = [kind.__name__ for kind in (ValueError, NameError) if isinstance(error, kind)]
        return [kinds[-1], *(phrase in str(error) for phrase in phrases)]
    return "nothing was raised"


def of_handlers() -> Any:
    return [
        words(lambda: handler(many), f"Handler many {SIGNATURE}"),
        words(lambda: handler(untyped), "Handler untyped must have a type annotation for the message parameter"),
        words(lambda: handler(bare), "Handler parameter 'ctx' must have a WorkflowContext, WorkflowContext[T] or"),
        words(lambda: handler(other), f"Handler {CONTEXT}, got"),
        words(lambda: handler(number), "Handler parameter 'ctx' OutT contains invalid type entry: 5"),
        words(lambda: handler(yields_number), "Handler parameter 'ctx' W_OutT contains invalid type entry: 5"),
        words(lambda: handler(variable), "has an unresolved TypeVar 'list[~T]' as its message type annotation"),
        words(lambda: handler(sends_variable), "Handler parameter 'ctx' OutT contains an unresolved TypeVar in '~T'"),
        words(lambda: handler(input=T)(open_handler), "Handler 'open_handler' has an unresolved TypeVar '~T' as its"),
        words(lambda: handler(output=int)(open_handler), "with explicit type parameters must specify 'input' type"),
    ]


def of_answers() -> Any:
    return [
        words(lambda: response_handler(answer), f"Response handler answer {ANSWER} 3 parameters"),
        words(lambda: response_handler(long_answer), f"Response handler long_answer {ANSWER} 5 parameters"),
        words(lambda: response_handler(untyped_request), "must have a type annotation for the original_request param"),
        words(lambda: response_handler(bare_answer)),
        words(lambda: response_handler(request=str)(bare_answer), "parameters must specify 'response' type"),
    ]


def of_functions() -> Any:
    return [
        words(lambda: FunctionExecutor(function), "Function instance function must have a type annotation for the mes"),
        words(
            lambda: FunctionExecutor(nothing), "must have (message: T) or (message: T, ctx: WorkflowContext[U]). Got"
        ),
        words(lambda: FunctionExecutor(wrong_context), f"Function instance {CONTEXT}, got"),
        words(
            lambda: executor(input="Unknown")(wrong_context), "Could not resolve type annotation 'Unknown'. Make sure"
        ),
        words(lambda: executor(staticmethod(function)), "decorator cannot be used with @staticmethod", "module-level"),
    ]


class Answers(Executor):
    @response_handler
    async def take(self, request: str, response: str, ctx: WorkflowContext) -> None: ...


class Later(Executor):
    def __init__(self) -> None:
        super().__init__(id="later", defer_discovery=True)


class Both(Executor):
    @handler
    async def take_text(self, message: str, ctx: WorkflowContext[Never, str]) -> None: ...

    @handler
    async def take_number(self, message: int, ctx: WorkflowContext[Never, int]) -> None: ...


async def main() -> Any:
    message = WorkflowMessage(data="text", source_id="other")
    return {
        "handlers": of_handlers(),
        "answers": of_answers(),
        "functions": of_functions(),
        "only answers": words(lambda: Answers("answers"), "Executor Answers has no handlers defined."),
        "deferred": Later().input_types,
        "types": sorted(kind.__name__ for kind in Both("both").input_types),
        "takes": Both("both").can_handle(message),
    }
