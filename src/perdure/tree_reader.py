"""Reads plain data, such as JSON, as the Structs that describe it, and reports all mistakes with their paths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from perdure.errors import did_you_mean
from perdure.names import is_utf8

INVALID: Final[Any] = object()
"""In the place of a value that was reported."""
_WORDS: dict[Any, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


@cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a Struct by their keys."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


@cache
def choices_of(hint: Any) -> tuple[tuple[Any, ...], bool]:
    """The members of a union without None, and whether None is a member."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(member for member in members if member is not NoneType), NoneType in members


def bare(hint: Any) -> Any:
    """The type without None and without its range."""
    [choice, *_], _ = choices_of(hint)
    return get_args(choice)[0] if get_origin(choice) is Annotated else choice


def is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def is_plain_text(value: Any) -> bool:
    """Whether it is a text that can be written as UTF-8."""
    return isinstance(value, str) and is_utf8(value)


class TreeReader(ABC):
    """A subclass collects what `report` gets, and decides how paths and values are shown.

    `Annotated[int, msgspec.Meta(ge=1, description="a positive integer")]` is a range with its words.
    """

    mapping_words = "an object"

    @abstractmethod
    def report(self, path: str, problem: str) -> None:
        """Collect a mistake; reading continues."""

    @abstractmethod
    def at(self, path: str, key: str | int) -> str:
        """The path of a key or an index."""

    @abstractmethod
    def quote_value(self, path: str, value: Any) -> str:
        """The value as messages show it; a secret is not shown."""

    # ------------------------------------------------------------ what a subclass may word

    def fields(self, kind: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
        return fields_of(kind)

    def describe(self, hint: Any) -> str:
        """The expected type in words."""
        choices, _ = choices_of(hint)
        return ", or ".join(map(self._describe_choice, choices))

    def _describe_choice(self, hint: Any) -> str:
        if get_origin(hint) is Annotated:
            return str(get_args(hint)[1].description)
        if get_origin(hint) is Literal:
            return f"one of {self.list_choices(get_args(hint))}"
        if get_origin(hint) is tuple:
            return "a list of texts" if bare(get_args(hint)[0]) is str else "a list"
        return _WORDS.get(hint, self.mapping_words)

    def list_choices(self, choices: tuple[str, ...]) -> str:
        return ", ".join(map(repr, choices))

    def unknown_key(self, kind: type[msgspec.Struct], key: str, known: list[str]) -> str:
        return f"unknown key{did_you_mean(key, known)}. Known: {', '.join(known)}"

    def advise(self, hint: Any, value: Any) -> str:
        """The hint after the message about a wrong value."""
        is_choice = get_origin(bare(hint)) is Literal and isinstance(value, str)
        return did_you_mean(value, get_args(bare(hint))) if is_choice else ""

    def report_expected(self, path: str, words: str, value: Any, advice: str = "") -> Any:
        """Returns INVALID."""
        self.report(path, f"expected {words}, got {self.quote_value(path, value)}{advice}")
        return INVALID

    # ------------------------------------------------------------ the walk

    def read(self, hint: Any, value: Any, path: str) -> Any:
        """The value as this type, without its wrong parts; INVALID if nothing of it is usable."""
        choices, may_be_null = choices_of(hint)
        if value is None and may_be_null:
            return None
        if len(choices) > 1:  # a Struct or a text
            choices = tuple(choice for choice in choices if isinstance(value, Mapping if is_struct(choice) else str))
            if not choices:
                return self.report_expected(path, self.describe(hint), value)
        [choice] = choices
        if is_struct(choice):
            return self.read_struct(choice, value, path)
        if choice is Any:
            return self.read_any(value, path)
        if get_origin(choice) is dict:
            return self._read_mapping(hint, get_args(choice)[1], value, path)
        if get_origin(choice) is tuple:
            return self._read_list(hint, get_args(choice)[0], value, path)
        return self.read_leaf(hint, value, path)

    def read_any(self, value: Any, path: str) -> Any:
        return value

    def read_struct(self, kind: type[msgspec.Struct], value: Any, path: str) -> Any:
        """Unknown keys first, then the fields in their order. INVALID if a field without a default is missing."""
        if not isinstance(value, Mapping):
            return self.report_expected(path, self.mapping_words, value)
        self.report_unknown_keys(kind, value, path)
        is_whole, parts = True, {}
        for key, field in self.fields(kind).items():
            if key in value:
                part = self.read(field.type, value[key], self.at(path, key))
                if part is not INVALID:
                    parts[field.name] = part
                    continue
            elif field.required:
                self.report(self.at(path, key), f"missing: expected {self.describe(field.type)}")
            is_whole = is_whole and not field.required
        return kind(**parts) if is_whole else INVALID

    def report_unknown_keys(self, kind: type[msgspec.Struct], value: Mapping[Any, Any], path: str) -> None:
        known = self.fields(kind)
        for key in value:
            if key not in known and self._is_key(key, path):
                self.report(self.at(path, key), self.unknown_key(kind, key, list(known)))

    def _is_key(self, key: Any, path: str) -> bool:
        """Reports a key that is not a text."""
        is_key = is_plain_text(key)
        if not is_key:
            self.report_expected(path, "a text as key", key, self.advise(str, key))
        return is_key

    def _read_mapping(self, hint: Any, item_hint: Any, value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return self.report_expected(path, self.describe(hint), value)
        items = {
            key: self.read(item_hint, item, self.at(path, key))
            for key, item in value.items()
            if self._is_key(key, path)
        }
        return {key: item for key, item in items.items() if item is not INVALID}

    def _read_list(self, hint: Any, item_hint: Any, value: Any, path: str) -> Any:
        if not isinstance(value, list | tuple):
            return self.report_expected(path, self.describe(hint), value)
        items = [self.read(item_hint, item, self.at(path, index)) for index, item in enumerate(value)]
        return tuple(items) if INVALID not in items else INVALID

    def read_leaf(self, hint: Any, value: Any, path: str) -> Any:
        try:
            leaf = msgspec.convert(value, hint)
        except msgspec.ValidationError:
            return self.report_expected(path, self.describe(hint), value, self.advise(hint, value))
        if isinstance(leaf, str) and not is_plain_text(leaf):
            return self.report_expected(path, "a text that can be written as UTF-8", value)
        return leaf
