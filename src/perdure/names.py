"""Names that stay the same from one process to the next: of types, of functions, of new threads.

Stored data refers to code by these names, so a class of a script must be called the same whether the
script was run (`python app.py`, module `__main__`) or imported (`import app`).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from perdure.errors import InvalidRun

OWN_PACKAGE = "perdure"

RESERVED_THREAD = "perdure:encryption"
"""The thread in which an encrypted store keeps what its keys are known by. Those who have the key do not see it."""


def stable_module(module: str) -> str:
    """The module's importable name: that of `__main__` is the one it would have if it were imported."""
    return main_module_name() or module if module == "__main__" else module


def main_module_name() -> str | None:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        name: str = spec.name
        return name.removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else None


def stable_name(thing: type | object) -> str:
    """`package.module:Qualname` of a class or function.

    A type of ours is `perdure:Qualname`, wherever it lives. The client's models repeat names of the engine's types, so
    theirs are `perdure:client.Qualname`.
    """
    module = getattr(thing, "__module__", None) or "builtins"
    qualname = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    if module.startswith(f"{OWN_PACKAGE}.client."):
        return f"{OWN_PACKAGE}:client.{qualname}"
    if module.startswith(f"{OWN_PACKAGE}."):
        return f"{OWN_PACKAGE}:{qualname}"
    return f"{stable_module(module)}:{qualname}"


def checkpoint_id_of(given: object) -> str:
    """The id that a caller means: the id itself, a CheckpointInfo, or a whole checkpoint."""
    return str(getattr(given, "checkpoint_id", given))


def check_identifier(parameter: str, value: object) -> None:
    """Ids are stored and shown: raises InvalidRun for one that is no text, is empty, or cannot be written."""
    if value is None:
        return
    if not isinstance(value, str) or not value:
        raise InvalidRun(f"{parameter} must be a non-empty string, got {value!r}.")
    if parameter == "thread_id" and value == RESERVED_THREAD:
        raise InvalidRun(f"{parameter} {value!r} is taken: encrypted stores keep something of their own there.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRun(f"{parameter} must be text that can be written as UTF-8, got {value!r}.") from error


_AT_ONCE = 512
_random: list[str] = []
"""Sixteen hexadecimal digits each, from the system, asked for many at a time: each asking gives up the interpreter's
lock, and while another thread has it, getting it back takes longer than all else here."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.clear)


def random_digits() -> str:
    """Sixteen, hexadecimal, that nobody else has or can guess."""
    while True:
        try:
            return _random.pop()
        except IndexError:
            digits = os.urandom(8 * _AT_ONCE).hex()
            _random.extend(digits[at : at + 16] for at in range(0, len(digits), 16))


def new_thread_id() -> str:
    """Time-ordered, so that threads list in the order they were made; random enough never to meet another."""
    return f"{time.time_ns() // 1_000_000:012x}-{random_digits()}"


def new_run_id() -> str:
    return f"run-{random_digits()}"


def new_item_id() -> str:
    """Time-ordered, so that an inbox is read in the order of arrival."""
    return f"{time.time_ns():016x}-{random_digits()[:8]}"
