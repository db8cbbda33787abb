"""What agents said, as it is stored, in the words of a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def spoken(tree: Any) -> str | None:
    """None for what is no message, content or response."""
    if not isinstance(tree, dict) or "$type" not in tree:
        return None
    read = _SPOKEN.get(str(tree["$type"]))
    try:
        return None if read is None else read(tree)
    except (KeyError, IndexError, TypeError, AttributeError):  # of another version, or cut
        return None


def _message(tree: Any) -> str:
    role, contents, *rest = tree["$value"]
    author = rest[0] if rest and rest[0] else role
    return f"{author}: {' '.join(map(_content, contents))}"


def _content(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    value = tree.get("$value", tree)
    kind = value["type"]
    if kind in _CONTENTS:
        return _CONTENTS[kind](value)
    return str(value.get("text") or value.get("uri") or value.get("message") or kind)


def _call(value: Any) -> str:
    arguments = value.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return f"{value.get('name')}({arguments})"
    given = ", ".join(f"{name}={one!r}" for name, one in (arguments or {}).items())
    return f"{value.get('name')}({given})"


def _result(value: Any) -> str:
    return f"failed: {value['exception']}" if value.get("exception") else f"gave {value.get('result')!r}"


def _asked(value: Any) -> str:
    return f"may {_call(value['function_call']['$value'])} be called?"


def _answered(value: Any) -> str:
    if value.get("approved"):
        return "approved"
    return f"rejected: {value['reason']}" if value.get("reason") else "rejected"


def _response(tree: Any) -> str:
    messages = tree["messages"]
    return " / ".join(map(_message, messages["items"] if isinstance(messages, dict) else messages))


def _approval(tree: Any) -> str:
    return "\n".join((str(tree["message"]), *(f"{key}: {value}" for key, value in tree["outputs"].items())))


_CONTENTS: dict[str, Callable[[Any], str]] = {
    "function_call": lambda value: f"calls {_call(value)}",
    "function_result": _result,
    "function_approval_request": _asked,
    "function_approval_response": _answered,
}
_SPOKEN: dict[str, Callable[[Any], str]] = {
    "perdure:Message": _message,
    "perdure:Content": _content,
    "perdure:AgentResponse": _response,
    "perdure:ApprovalRequest": _approval,
}
