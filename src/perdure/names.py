"""Names: stable ones of types, functions, new threads and content, and those that a package imports on first use.

Stored data refers to code by these names, so a class of a script must be called the same whether the
script was run (`python app.py`, module `__main__`) or imported (`import app`).
"""

from __future__ import annotations

import os
import sys
import time
from binascii import b2a_base64
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b, sha256
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args

from perdure.errors import InvalidRun, did_you_mean

OWN_PACKAGE = "perdure"

RESERVED_THREAD = "perdure:encryption"
"""The thread in which an encrypted store keeps the identities of its keys. A store with the key hides it."""


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


def checkpoint_id_of(reference: object) -> str:
    """The id that `reference` names: an id itself, a CheckpointInfo, or a checkpoint."""
    return str(getattr(reference, "checkpoint_id", reference))


def is_utf8(text: str) -> bool:
    """Whether the text can be written as UTF-8: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_identifier(parameter: str, value: object) -> None:
    """Raises InvalidRun for an id that is not text, is empty, is reserved, or is not valid UTF-8. None passes."""
    if value is None:
        return
    if not isinstance(value, str) or not value:
        raise InvalidRun(f"{parameter} must be a non-empty string, got {value!r}.")
    if parameter == "thread_id" and value == RESERVED_THREAD:
        raise InvalidRun(f"{parameter} {value!r} is reserved: encrypted stores keep their key identities there.")
    if not is_utf8(value):
        raise InvalidRun(f"{parameter} must be text that can be written as UTF-8, got {value!r}.")


_BATCH_SIZE = 512
_random: list[str] = []
"""Random numbers of sixteen hexadecimal digits. They come from the system in batches: each system call releases the
interpreter's lock, and getting it back from another thread takes longer than the call."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.clear)


OnBusy = Literal["reject", "enqueue", "interrupt"]
"""The behaviour of a call whose thread another run owns."""


def check_choice(parameter: str, value: object, choices: object) -> None:
    """Raises InvalidRun for a value that is not one of a Literal."""
    allowed = get_args(choices)
    if value not in allowed:
        raise InvalidRun(
            f"{parameter} must be one of {', '.join(map(repr, allowed))}, got {value!r}"
            f"{did_you_mean(str(value), allowed)}."
        )


def random_digits() -> str:
    """Sixteen hexadecimal digits, unique and unpredictable."""
    while True:
        try:
            return _random.pop()
        except IndexError:
            digits = os.urandom(8 * _BATCH_SIZE).hex()
            _random.extend(digits[at : at + 16] for at in range(0, len(digits), 16))


def new_thread_id() -> str:
    """Time-ordered, so that threads list in the order of their creation; random enough to be unique."""
    return f"{time.time_ns() // 1_000_000:012x}-{random_digits()}"


def new_run_id() -> str:
    return f"run-{random_digits()}"


def new_item_id() -> str:
    """Time-ordered, so that an inbox is read in the order of arrival."""
    return f"{time.time_ns():016x}-{random_digits()[:8]}"


SHORT = 6
"""Characters of a digest that identify it within its commit, but for one in many millions."""


def digest_of(data: bytes) -> str:
    """128 bits of SHA-256, as 22 characters: the name of a chunk, the checksum of a line."""
    return b2a_base64(sha256(data).digest()[:16], newline=False)[:22].decode("ascii")


def check_options(function: str, options: Iterable[str], known: Collection[str]) -> None:
    """Raises TypeError for an unknown keyword argument."""
    for name in options:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{did_you_mean(name, known)}")


def join_names(kind: str, names: Iterable[str]) -> str:
    """The name of a workflow without one: equal in every process, and different for other parts. At most 60 characters
    of the parts' names are in it."""
    joined = "-".join(names)
    if len(joined) > 60:
        joined = f"{joined[:60]}-{blake2b(joined.encode(), digest_size=4).hexdigest()}"
    return f"{kind}-{joined}"


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports its names on first use. `homes`: name -> module."""
    module = sys.modules[package]

    def find(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{did_you_mean(name, homes)}")
        value: object = getattr(import_module(home), name)
        setattr(module, name, value)  # the next access needs no `__getattr__`
        return value

    return find, lambda: sorted([*vars(module), *homes])


def homes_of(names: Mapping[str, str]) -> dict[str, str]:
    """name -> module, in the order of the names, from module -> names with spaces between them."""
    return dict(sorted((name, module) for module, listed in names.items() for name in listed.split()))
