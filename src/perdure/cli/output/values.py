"""Values as people and machines read them: whatever is stored, of whatever type, without the code that made it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from perdure.codecs.json_codec import JsonCodec
from perdure.errors import PerdureError

# ---------------------------------------------------------------- spoken


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


LINE: Final = 100
"""Characters of a value that is shown in one line; a longer one is spread over several."""
MOST: Final = 4_000
"""Characters of one text; `--json` shows all of it."""

_CODEC = JsonCodec(lenient=True)
_BRACKETS = {"tuple": ("(", ")"), "set": ("{", "}"), "frozenset": ("{", "}")}


def tree_of(value: Any) -> Any:
    """The value as plain JSON, types tagged with `$type`: as it is stored. What cannot be stored is its `repr`."""
    try:
        return _CODEC.encode(value, "value")
    except PerdureError:
        return repr(value)


def in_a_line(value: Any) -> str:
    """The value in one line; a text without quotes."""
    tree = tree_of(value)
    return " ".join(printable(tree if isinstance(tree, str) else _short(tree)).split())


def tree_in_a_line(tree: Any) -> str:
    """A stored value in one line; a text with quotes. Of perdure's own records only the fields that say something."""
    return printable(_short(_telling(tree)))


def _telling(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_telling(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    is_ours = str(tree.get("$type", "")).startswith("perdure:")
    return {key: _telling(item) for key, item in tree.items() if not (is_ours and _says_nothing(item))}


def _says_nothing(tree: Any) -> bool:
    if isinstance(tree, dict):
        return tree.get("name") == "FRAMEWORK" or tree == {"$type": "tuple", "items": []}
    return tree is None or tree is False or tree in ("", [])


def in_lines(value: Any) -> list[str]:
    """The value, spread over lines where one is not enough."""
    return [cut(printable(line)) for line in _lines(tree_of(value), is_inner=False)]


def in_full(value: Any) -> list[str]:
    """The value over as many lines as it takes, nothing of it cut off."""
    return [printable(line) for line in _lines(tree_of(value), is_inner=False)]


def printable(text: str) -> str:
    """The text without anything that would move a terminal's cursor or change its colours."""
    return "".join(one if one.isprintable() or one in "\n\t" else _escaped(one) for one in text)


def cut(text: str, most: int = MOST) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} more characters; --json shows all)"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


# ---------------------------------------------------------------- trees


def _short(tree: Any) -> str:
    if isinstance(tree, list):
        return f"[{', '.join(map(_short, tree))}]"
    if not isinstance(tree, dict):
        return repr(tree)
    if "$type" not in tree:
        return f"{{{', '.join(f'{key!r}: {_short(item)}' for key, item in tree.items())}}}"
    said = spoken(tree)
    if said is not None:
        return said
    return _typed(tree["$type"], {key: item for key, item in tree.items() if key != "$type"})


def _typed(kind: str, fields: dict[str, Any]) -> str:
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
    if spoken(tree) is not None:
        return short.splitlines() or [""]
    if len(short) <= LINE and "\\n" not in short:
        return [short]
    if isinstance(tree, list):
        return [line for item in tree for line in _indented("- ", _lines(item))]
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


def _indented(mark: str, lines: list[str]) -> list[str]:
    return [f"{mark}{lines[0]}", *(f"{' ' * len(mark)}{line}" for line in lines[1:])]
