"""The form of a document: every deviation is reported with its path and the value there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from msgspec import inspect as types

from perdure.agent_workflow.definition import config as parts
from perdure.agent_workflow.definition.condition import JOINED, TYPES, WITHOUT_VALUE, Condition
from perdure.agent_workflow.definition.config import FORMAT, WorkflowConfig
from perdure.errors import did_you_mean
from perdure.graph.policy import LONGEST

Problem: TypeAlias = tuple[str, str]
"""A path in the document, and the problem there."""
_PLAIN = re.compile(r"[\w$-]+")
_LONGEST = 80


def at(path: str, key: str | int) -> str:
    """`agents.review`, `edges[2]`, and `agents["a b"]` for a key with other characters."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN.fullmatch(key):
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def below(path: str, problems: Iterable[Problem]) -> list[Problem]:
    """Problems of a document that is nested at a path of another."""
    return [(f"{path}.{inner}" if inner else path, problem) for inner, problem in problems]


def quote_value(value: Any) -> str:
    """A value as in a document, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True)
class Rule:
    words: str
    """The expected value, in words."""
    allows: Callable[[Any], bool]
    schema: Mapping[str, Any]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


COUNT = Rule("a positive integer", lambda value: type(value) is int and value >= 1, {"type": "integer", "minimum": 1})
DURATION = Rule(
    "a positive number of seconds, at most a century",
    lambda value: is_number(value) and 0 < value <= LONGEST,
    {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST},
)
DELAY = Rule(
    "a number of seconds, from 0 to a century",
    lambda value: is_number(value) and 0 <= value <= LONGEST,
    {"type": "number", "minimum": 0, "maximum": LONGEST},
)
NAME = Rule(
    "a text that is not empty",
    lambda value: isinstance(value, str) and bool(value.strip()),
    {"type": "string", "minLength": 1},
)
RULES: Mapping[tuple[type, str], Rule] = {
    (parts.WorkflowConfig, "name"): NAME,
    (parts.WorkflowConfig, "version"): NAME,
    (parts.SettingsConfig, "max_iterations"): COUNT,
    (parts.SettingsConfig, "timeout"): DURATION,
    (parts.SettingsConfig, "model"): NAME,
    (parts.ConversationConfig, "session_id"): NAME,
    (parts.ConversationConfig, "root_thread_id"): NAME,
    (parts.ConversationConfig, "thread_prefix"): NAME,
    (parts.AgentConfig, "model"): NAME,
    (parts.NodeConfig, "input_key"): NAME,
    (parts.NodeConfig, "output_key"): NAME,
    (parts.NodeConfig, "timeout"): DURATION,
    (parts.NodeConfig, "max_concurrent"): COUNT,
    (parts.RetryConfig, "max_attempts"): COUNT,
    (parts.RetryConfig, "initial_delay"): DELAY,
    (parts.RetryConfig, "max_delay"): DELAY,
    (parts.ApprovalConfig, "timeout"): DELAY,
    (parts.MapConfig, "over"): NAME,
    (parts.MapConfig, "max_parallel"): COUNT,
    (parts.EdgeConfig, "delay"): DELAY,
}
"""By the class of the part and the name of the field in Python."""
KEYS = ("type", "field", "value", "conditions", "ignore_case")
_ORDERED = frozenset({"greater_than", "greater_than_or_equal", "less_than", "less_than_or_equal"})
_TEXTS = frozenset({"starts_with", "ends_with", "matches_regex"})
_LISTS = frozenset({"contains_any", "contains_all"})


def takes_field(type: Any) -> bool:
    return type in TYPES and type not in JOINED and type != "always"


def takes_value(type: Any) -> bool:
    return takes_field(type) and type not in WITHOUT_VALUE


def check_condition(tree: Mapping[Any, Any], path: str) -> Iterator[Problem]:
    for key in tree:
        if key not in KEYS:
            hint = did_you_mean(str(key), KEYS)
            yield at(path, str(key)), f"unknown key{hint}. Known: {', '.join(KEYS)}"
    kind = tree.get("type")
    if "type" not in tree:
        yield at(path, "type"), f"missing: expected one of {', '.join(sorted(TYPES))}"
        return
    if not isinstance(kind, str) or kind not in TYPES:
        hint = did_you_mean(kind, TYPES) if isinstance(kind, str) else ""
        yield at(path, "type"), f"expected one of {', '.join(sorted(TYPES))}; got {quote_value(kind)}{hint}"
        return
    yield from _field(kind, tree, path)
    yield from _value(kind, tree, path)
    yield from _check_joined(kind, tree, path)
    ignores = tree.get("ignore_case", False)
    if not isinstance(ignores, bool):
        yield at(path, "ignore_case"), f"expected true or false, got {quote_value(ignores)}"
    elif ignores and kind != "matches_regex":
        yield at(path, "ignore_case"), f"only 'matches_regex' has it, not {kind!r}"


def _field(kind: str, tree: Mapping[Any, Any], path: str) -> Iterator[Problem]:
    field, here = tree.get("field"), at(path, "field")
    if not takes_field(kind):
        if field is not None:
            yield here, f"{kind!r} asks about no field, got {quote_value(field)}"
    elif field is None:
        yield here, f"missing: {kind!r} asks about a field"
    elif not isinstance(field, str) or not field:
        yield here, f"expected a text that is not empty, got {quote_value(field)}"


def _value(kind: str, tree: Mapping[Any, Any], path: str) -> Iterator[Problem]:
    value, here = tree.get("value"), at(path, "value")
    if not takes_value(kind):
        if value is not None:
            yield here, f"{kind!r} takes no value, got {quote_value(value)}"
        return
    if "value" not in tree:
        yield here, f"missing: {kind!r} compares with a value"
        return
    words, allows = _expectation(kind)
    if not allows(value):
        yield here, f"expected {words}, got {quote_value(value)}"
    elif kind == "matches_regex":
        try:
            re.compile(str(value))
        except (re.error, OverflowError, RecursionError) as error:
            yield here, f"not a regular expression: {error}; got {quote_value(value)}"


def _expectation(kind: str) -> tuple[str, Callable[[Any], bool]]:
    if kind in _ORDERED:
        return "a number or a text", lambda value: is_number(value) or isinstance(value, str)
    if kind in _TEXTS:
        return "a text", lambda value: isinstance(value, str)
    if kind in _LISTS:
        return "a list", lambda value: isinstance(value, list | tuple)
    return "a value", lambda value: True


def _check_joined(kind: str, tree: Mapping[Any, Any], path: str) -> Iterator[Problem]:
    inner, here = tree.get("conditions", ()), at(path, "conditions")
    if not isinstance(inner, list | tuple):
        yield here, f"expected a list, got {quote_value(inner)}"
        return
    if kind not in JOINED:
        if inner:
            yield here, f"{kind!r} joins no conditions, got {len(inner)}"
        return
    if not inner:
        yield here, f"missing: {kind!r} joins other conditions"
    elif kind == "not" and len(inner) != 1:
        yield here, f"expected one condition in 'not', got {len(inner)}"
    for index, condition in enumerate(inner):
        if isinstance(condition, Mapping):
            yield from check_condition(condition, at(here, index))
        else:
            yield at(here, index), f"expected a mapping, got {quote_value(condition)}"


SCHEMA_KEY = "$schema"
"""Editors find the schema by it; perdure ignores it."""


def problems_in(tree: Any, *, is_document: bool = True) -> list[Problem]:
    """Problems of a document or, without `is_document`, of a builder's definition: there `context` and `metadata` may
    hold any Python value."""
    walk = _Walk(is_document)
    if isinstance(tree, Mapping) and SCHEMA_KEY in tree:
        tree = {key: value for key, value in tree.items() if key != SCHEMA_KEY}
    walk.struct(tree, form_of(WorkflowConfig), "")
    return walk.problems


@cache
def form_of(part: type) -> types.StructType:
    """The fields of a part. Cached: msgspec computes them on each call."""
    form = types.type_info(part)
    assert isinstance(form, types.StructType)  # noqa: S101  # parts are Structs
    return form


def is_plain_text(value: Any) -> bool:
    """Whether it can be written as UTF-8."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Walk:
    def __init__(self, is_document: bool) -> None:
        self.problems: list[Problem] = []
        self._is_document = is_document

    def _report_mismatch(self, words: str, value: Any, path: str, hint: str = "") -> None:
        self.problems.append((path, f"expected {words}, got {quote_value(value)}{hint}"))

    def struct(self, value: Any, form: types.StructType, path: str) -> None:
        if not isinstance(value, Mapping):
            self._report_mismatch("a mapping", value, path)
        elif form.cls is Condition:
            self.problems += check_condition(value, path)
        elif form.cls is not WorkflowConfig or self._is_of_this_format(value, path):
            self._fields(value, form, path)

    def _is_of_this_format(self, value: Mapping[Any, Any], path: str) -> bool:
        """Keys of another format are unknown here, so no other problem is reported."""
        version = value.get("format", FORMAT)
        if version == FORMAT or not isinstance(version, str | int | float) or str(version) == FORMAT:
            return True
        problem = f"the document has format {quote_value(version)}; this perdure reads {quote_value(FORMAT)}"
        problem += ". Use a newer perdure"
        self.problems.append((at(path, "format"), problem))
        return False

    def _fields(self, value: Mapping[Any, Any], form: types.StructType, path: str) -> None:
        known = {field.encode_name: field for field in form.fields}
        for key in value:
            if not isinstance(key, str):
                self._report_mismatch("a text as key", key, path)
            elif key not in known:
                keys = ", ".join(known)
                self.problems.append((at(path, key), f"unknown key{did_you_mean(key, known)}. Known: {keys}"))
        for key, field in known.items():
            rule = RULES.get((form.cls, field.name))
            if key in value:
                self.any(value[key], field.type, at(path, key), rule)
            elif field.required:
                self.problems.append((at(path, key), f"missing: expected {_words(field.type, rule)}"))

    def any(self, value: Any, form: types.Type, path: str, rule: Rule | None = None) -> None:
        choices = form.types if isinstance(form, types.UnionType) else (form,)
        if value is None and any(isinstance(choice, types.NoneType) for choice in choices):
            return
        inner = [choice for choice in choices if not isinstance(choice, types.NoneType)]
        if len(inner) > 1:
            self._text_or_struct(value, inner, path)
        elif rule is not None:
            self._check_rule(value, rule, path)
        else:
            self._single(value, inner[0], path)

    def _check_rule(self, value: Any, rule: Rule, path: str) -> None:
        if not rule.allows(value):
            self._report_mismatch(rule.words, value, path, _quotes(value) if rule is NAME else "")
        elif isinstance(value, str):
            self._text(value, path)

    def _text_or_struct(self, value: Any, choices: list[types.Type], path: str) -> None:
        if isinstance(value, str):
            self._text(value, path)
            return
        if not isinstance(value, Mapping):
            self._report_mismatch("a mapping, or an import path such as 'package.module:name'", value, path)
            return
        [form] = [choice for choice in choices if isinstance(choice, types.StructType)]
        self.struct(value, form_of(form.cls), path)

    def _single(self, value: Any, form: types.Type, path: str) -> None:
        if isinstance(form, types.StructType):
            self.struct(value, form_of(form.cls), path)
        elif isinstance(form, types.DictType):
            self._mapping(value, form, path)
        elif isinstance(form, types.VarTupleType):
            self._list(value, form, path)
        elif isinstance(form, types.LiteralType):
            self._choice(value, form, path)
        elif isinstance(form, types.StrType):
            self._text(value, path)
        elif isinstance(form, types.BoolType):
            if not isinstance(value, bool):
                self._report_mismatch("true or false", value, path)
        elif self._is_document:
            self.problems += plain_data_problems(value, path)

    def _mapping(self, value: Any, form: types.DictType, path: str) -> None:
        if not isinstance(value, Mapping):
            self._report_mismatch("a mapping", value, path)
            return
        for key, item in value.items():
            if is_plain_text(key):
                self.any(item, form.value_type, at(path, key))
            else:
                self._report_mismatch("a text as key", key, path, _quotes(key))

    def _list(self, value: Any, form: types.VarTupleType, path: str) -> None:
        if not isinstance(value, list | tuple):
            self._report_mismatch("a list", value, path)
            return
        for index, item in enumerate(value):
            self.any(item, form.item_type, at(path, index))

    def _choice(self, value: Any, form: types.LiteralType, path: str) -> None:
        if not isinstance(value, str) or value not in form.values:
            names = [str(item) for item in form.values]
            hint = did_you_mean(value, names) if isinstance(value, str) else ""
            self._report_mismatch(f"one of {', '.join(map(quote_value, names))}", value, path, hint)

    def _text(self, value: Any, path: str) -> None:
        if not isinstance(value, str):
            self._report_mismatch("a text", value, path, _quotes(value))
        elif not is_plain_text(value):
            self._report_mismatch("a text that can be written as UTF-8", value, path)


def _quotes(value: Any) -> str:
    """Advice for values such as `version: 1.0`."""
    is_scalar = isinstance(value, int | float) and not isinstance(value, bool)
    return ": write it in quotes" if is_scalar else ""


def _words(form: types.Type, rule: Rule | None) -> str:
    if rule is not None:
        return rule.words
    return "a text" if isinstance(form, types.StrType) else "a mapping"


def plain_data_problems(value: Any, path: str) -> list[Problem]:
    """Problems of values that are not plain data: no document can hold them."""
    if value is None or isinstance(value, bool) or type(value) is int or is_plain_text(value):
        return []
    if isinstance(value, float):
        is_finite = value - value == 0
        return [] if is_finite else [(path, f"expected a number that JSON has, got {value!r}")]
    if isinstance(value, list | tuple):
        return [problem for index, inner in enumerate(value) for problem in plain_data_problems(inner, at(path, index))]
    if isinstance(value, Mapping):
        problems: list[Problem] = []
        for key, inner in value.items():
            if is_plain_text(key):
                problems += plain_data_problems(inner, at(path, key))
            else:
                problems.append((path, f"expected a text as key, got {quote_value(key)}{_quotes(key)}"))
        return problems
    words = "texts, numbers, true, false, null, lists and mappings"
    return [(path, f"not plain data: a document holds {words}; got {value!r:.200}")]
