"""What a request for approval is answered with, checked before it is accepted."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from perdure.agents.content import Content


class _ChecksInstances(type(msgspec.Struct)):  # type: ignore[misc]  # msgspec does not name its metaclass
    """A Content is an instance if it approves or rejects, so that the engine refuses any other as an answer."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Content) and _problem(value) is None


class ApprovalResponse(Content, frozen=True, forbid_unknown_fields=True, metaclass=_ChecksInstances):
    """The type of the answer: a `function_approval_response` such as `request.approve()` gives, or as JSON
    `{"approved": true}`, with `reason` or other `arguments`."""

    sample_answer: ClassVar[str] = '{"approved": true}'
    """Shown to people who are asked on the command line."""
    type: str = "function_approval_response"

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = _problem(self)
        if problem is not None:
            raise ValueError(problem)


def completed(request: Content, answer: Content) -> Content:
    """The answer with the request's id, and the call as it is to be made."""
    call = request.function_call
    if call is None or request.id is None:
        raise ValueError(f"Only a function_approval_request can be answered, this is a {request.type}.")
    changed = answer.arguments if answer.function_call is None else answer.function_call.arguments
    if changed is not None:
        call = msgspec.structs.replace(call, arguments=changed)
    return Content.from_function_approval_response(bool(answer.approved), request.id, call, reason=answer.reason)


def _problem(answer: Content) -> str | None:
    if answer.type != "function_approval_response":
        return f"Expected a function_approval_response, got a {answer.type}"
    if answer.approved is None:
        return "Expected `approved` to be true or false"
    for call in (answer, answer.function_call):
        try:
            _ = call and call.parse_arguments()
        except ValueError as error:
            return str(error)
    return None
