"""What a client sends, as a message that a workflow takes."""

from __future__ import annotations

from typing import Any, Union

from perdure.agents.conversation.message import Message
from perdure.engine.thread.inputs import accepts
from perdure.errors import type_name
from perdure.graph.types.coercion import coerce
from perdure.server.problems import HttpProblem
from perdure.workflows.workflow import Workflow


def message_from(workflow: Workflow, given: Any) -> Any:
    """JSON as what the workflow's start takes. Raises HttpProblem."""
    if accepts(workflow.graph, given) and not isinstance(given, dict | list):
        return given
    types = workflow.input_types
    try:
        return coerce(given, Union[tuple(types)])  # noqa: UP007  # a union of types known only now
    except (ValueError, TypeError) as error:
        expected = " or ".join(type_name(one) for one in types)
        raise HttpProblem(
            422, "wrong_input_type", f"{workflow.name!r} takes {expected}: {error} Nothing was started.", field="input"
        ) from error


def message_of_conversation(workflow: Workflow, messages: list[Message]) -> Any:
    """Messages of a conversation as what the workflow's start takes: all of them, the last, or its text. Raises
    HttpProblem."""
    last = messages[-1]
    for given in (messages, last, last.text):
        if accepts(workflow.graph, given):
            return given
    expected = " or ".join(type_name(one) for one in workflow.input_types)
    raise HttpProblem(
        422,
        "wrong_input_type",
        f"{workflow.name!r} takes {expected}, not messages. Use POST /v1/threads/{{thread_id}}/runs. "
        "Nothing was started.",
        field="messages",
    )
