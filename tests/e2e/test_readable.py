"""The form of values on the command line, and that its proposed answers are valid."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from perdure.cli.commands.run import parse_answer
from perdure.cli.progress import UNKNOWN, sample_answer
from perdure.cli.values import make_printable, to_line, to_lines, to_tree
from perdure.codecs.builtin_types import Opaque
from perdure.events import WorkflowEvent


class Choice(enum.Enum):
    YES = "yes"
    NO = "no"


@dataclass
class Verdict:
    approved: bool
    choice: Choice
    note: str = ""


class Amount(msgspec.Struct):
    cents: int
    currency: Literal["EUR", "CHF"]


class Model(pydantic.BaseModel):
    names: list[str]


class Reply(TypedDict):
    text: str
    is_final: NotRequired[bool]


UNKNOWN_TYPE = Opaque("gone.module:Draft", {"title": "x", "parts": {"$type": "tuple", "items": [1, None]}})


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("two\nlines", "two lines"),
        (5, "5"),
        ([1, "a", None, True], "[1, 'a', None, True]"),
        ((1, {2}), "(1, {2})"),
        ({1: "a"}, "{1: 'a'}"),
        (Decimal("1.50"), "1.50"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (Verdict(True, Choice.NO), "Verdict(approved=True, choice=Choice(name='NO'), note='')"),
        (UNKNOWN_TYPE, "Draft(title='x', parts=(1, None))"),
        (Opaque("type", {"name": "gone.module:Draft"}), "Draft"),
        (list[Verdict] | None, "list[Verdict] | None"),
        (Literal["a", "b"], "'a' | 'b'"),
        (object(), "<object object at"),
    ],
)
def test_value_is_shown_in_a_line(value: Any, line: str) -> None:
    assert to_line(value).startswith(line)


def test_long_value_spans_lines_and_text_keeps_its_lines() -> None:
    long = {"note": "first\nsecond", "verdicts": [Verdict(True, Choice.YES, "x" * 80)], "n": 1}
    assert to_lines("first\nsecond") == ["first", "second"]
    assert to_lines(long) == [
        "note:",
        "  first",
        "  second",
        "verdicts:",
        "  - Verdict",
        "      approved: True",
        "      choice: Choice(name='YES')",
        f"      note: '{'x' * 80}'",
        "n: 1",
    ]


def test_very_long_text_is_cut_in_lines_and_whole_in_json() -> None:
    text = "x" * 10_000
    [line] = to_lines(text)
    assert line.endswith("... (6000 more characters; --json shows all)")
    assert to_tree(text) == text


def test_printable_text_escapes_control_characters() -> None:
    assert make_printable("a\x1b[31m\x07\x9b\u202eb\n\tc é") == "a\\x1b[31m\\x07\\x9b\\u202eb\n\tc é"


@pytest.mark.parametrize(
    "expected",
    [
        str,
        bool,
        int,
        float,
        Choice,
        Verdict,
        Amount,
        Model,
        Reply,
        list[Amount],
        str | None,
        Literal[3, 4],
        dict[str, int],
    ],
    ids=str,
)
def test_proposed_answer_is_accepted(expected: Any) -> None:
    value = sample_answer(expected)
    assert value != UNKNOWN
    parse_answer(
        WorkflowEvent.request_info("r", "asker", "what?", expected), value
    )  # raises if the answer is not valid


def test_type_without_a_known_answer_gets_no_proposal() -> None:
    assert sample_answer(bytes) == sample_answer(list[complex]) == UNKNOWN
