"""Stored values of any type as people and machines read them, without the code that made them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from perdure.codecs.json_codec import JsonCodec
from perdure.errors import PerdureError


def agent_text(tree: Any) -> str | None:
    """None for another type than message, content and response."""
    if not isinstance(tree, dict) or "$type" not in tree:
        return None
    read = _AGENT_TYPES.get(str(tree["$type"]))
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
    arguments_text = ", ".join(f"{name}={character!r}" for name, character in (arguments or {}).items())
    return f"{value.get('name')}({arguments_text})"


def _approval_answer(value: Any) -> str:
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
    "function_result": lambda value: (
        f"failed: {value['exception']}" if value.get("exception") else f"gave {value.get('result')!r}"
    ),
    "function_approval_request": lambda value: f"may {_call(value['function_call']['$value'])} be called?",
    "function_approval_response": _approval_answer,
}
_AGENT_TYPES: dict[str, Callable[[Any], str]] = {
    "perdure:Message": _message,
    "perdure:Content": _content,
    "perdure:AgentResponse": _response,
    "perdure:ApprovalRequest": _approval,
}


LINE_CHARACTERS: Final = 100
"""Characters of a value that is shown in one line; a longer one is spread over several."""
MAX_CHARACTERS: Final = 4_000
"""Characters of one text; `--json` shows all of it."""

_CODEC = JsonCodec(lenient=True)
_BRACKETS = {"tuple": ("(", ")"), "set": ("{", "}"), "frozenset": ("{", "}")}


def to_tree(value: Any) -> Any:
    """The value as plain JSON, types tagged with `$type`: as it is stored. What cannot be stored is its `repr`."""
    try:
        return _CODEC.encode(value, "value")
    except PerdureError:
        return repr(value)


def to_line(value: Any) -> str:
    """The value in one line; a text without quotes."""
    tree = to_tree(value)
    return " ".join(make_printable(tree if isinstance(tree, str) else _short(tree)).split())


def tree_to_line(tree: Any) -> str:
    """A stored value in one line; a text with quotes. Of perdure's own records only the fields that are set."""
    return make_printable(_short(_drop_empty_fields(tree)))


def _drop_empty_fields(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_drop_empty_fields(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    is_ours = str(tree.get("$type", "")).startswith("perdure:")
    return {key: _drop_empty_fields(item) for key, item in tree.items() if not (is_ours and _is_empty(item))}


def _is_empty(tree: Any) -> bool:
    if isinstance(tree, dict):
        return tree.get("name") == "FRAMEWORK" or tree == {"$type": "tuple", "items": []}
    return tree is None or tree is False or tree in ("", [])


def to_lines(value: Any) -> list[str]:
    """The value, spread over lines where one is not enough."""
    return [*map(shorten, to_full_lines(value))]


def to_full_lines(value: Any) -> list[str]:
    """The whole value, over any number of lines."""
    return [make_printable(line) for line in _lines(to_tree(value), is_inner=False)]


def make_printable(text: str) -> str:
    """The text without anything that would move a terminal's cursor or change its colours."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else character.encode("unicode_escape").decode()
        for character in text
    )


def shorten(text: str, most: int = MAX_CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} more characters; --json shows all)"


def _short(tree: Any) -> str:
    if isinstance(tree, list):
        return f"[{', '.join(map(_short, tree))}]"
    if not isinstance(tree, dict):
        return repr(tree)
    if "$type" not in tree:
        return f"{{{', '.join(f'{key!r}: {_short(item)}' for key, item in tree.items())}}}"
    text = agent_text(tree)
    if text is not None:
        return text
    return _format_typed(tree["$type"], {key: item for key, item in tree.items() if key != "$type"})


def _format_typed(kind: str, fields: dict[str, Any]) -> str:
    name = kind.rpartition(":")[2]
    if kind in _TYPES:
        return _TYPES[kind](fields)
    if kind in _BRACKETS and isinstance(fields.get("items"), list):
        opening, closing = _BRACKETS[kind]
        return opening + ", ".join(map(_short, fields["items"])) + closing
    if kind == "dict" and isinstance(fields.get("items"), list):
        return f"{{{', '.join(f'{_short(key)}: {_short(item)}' for key, item in fields['items'])}}}"
    if len(fields) == 1 and ":" not in kind:  # a time, a number or the like: its text says what it is
        [text] = fields.values()
        return str(text) if isinstance(text, str) else f"{name}({_short(text)})"
    return f"{name}({', '.join(f'{key}={_short(item)}' for key, item in fields.items())})"


def _name(fields: dict[str, Any]) -> str:
    name = str(fields.get("name", "")).rpartition(":")[2]
    return "None" if name == "NoneType" else name


_TYPES: dict[str, Callable[[dict[str, Any]], str]] = {
    "type": _name,
    "union": lambda fields: " | ".join(map(_short, fields.get("args", ()))),
    "alias": lambda fields: f"{_short(fields.get('origin'))}[{', '.join(map(_short, fields.get('args', ())))}]",
    "literal": lambda fields: " | ".join(map(_short, fields.get("values", ()))),
    "any": lambda _: "Any",
    "ellipsis": lambda _: "...",
}
"""Types are values too: a request says of what type its answer has to be."""


def _lines(tree: Any, *, is_inner: bool = True) -> list[str]:
    if isinstance(tree, str) and (not is_inner or "\n" in tree):
        return tree.splitlines() or [""]
    short = _short(tree)
    if agent_text(tree) is not None:
        return short.splitlines() or [""]
    if len(short) <= LINE_CHARACTERS and "\\n" not in short:
        return [short]
    if isinstance(tree, list):
        return [f"{'- ' if not place else '  '}{line}" for item in tree for place, line in enumerate(_lines(item))]
    if isinstance(tree, dict) and "$type" not in tree:
        return [line for key, item in tree.items() for line in _entry(str(key), item)]
    if isinstance(tree, dict) and ":" in tree["$type"]:
        name = tree["$type"].rpartition(":")[2]
        fields = [line for key, item in tree.items() if key != "$type" for line in _entry(key, item)]
        return [name, *(f"  {line}" for line in fields)]
    return [short]


def _entry(key: str, item: Any) -> list[str]:
    lines = _lines(item)
    return [f"{key}: {lines[0]}"] if len(lines) == 1 else [f"{key}:", *(f"  {line}" for line in lines)]
