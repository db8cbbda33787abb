"""Each condition: when it holds, and what it makes of fields that are missing or of another type."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.agent_workflow import condition
from perdure.agent_workflow.condition import Condition

OUTPUTS: dict[str, Any] = {
    "score": 7,
    "text": "Tides rise",
    "tags": ["sea", "moon"],
    "none": None,
    "blank": "  ",
    "empty": [],
    "no": {},
    "zero": 0,
    "yes": True,
    "review": {"score": 3, "by": {"name": "Ann"}},
    "a.b": "dotted",
    "a": {"b": "nested"},
}

HOLD = [
    condition.always(),
    condition.equals("score", 7),
    condition.equals("score", 7.0),
    condition.equals("tags", ["sea", "moon"]),
    condition.equals("none", None),
    condition.equals("review.by.name", "Ann"),
    condition.equals("a.b", "dotted"),
    condition.not_equals("score", 8),
    condition.not_equals("missing", 8),
    condition.not_equals("yes", 1),
    condition.exists("zero"),
    condition.exists("empty"),
    condition.exists("review.score"),
    condition.not_exists("missing"),
    condition.not_exists("none"),
    condition.not_exists("review.missing"),
    condition.not_exists("score.deeper"),
    condition.greater_than("score", 6),
    condition.greater_than_or_equal("score", 7),
    condition.less_than("score", 7.5),
    condition.less_than_or_equal("score", 7),
    condition.greater_than("text", "S"),
    condition.contains("text", "rise"),
    condition.contains("tags", "sea"),
    condition.contains("review", "score"),
    condition.starts_with("text", "Tides"),
    condition.ends_with("text", "rise"),
    condition.matches_regex("text", r"r.se$"),
    condition.matches_regex("text", "TIDES", ignore_case=True),
    condition.is_empty("missing"),
    condition.is_empty("none"),
    condition.is_empty("blank"),
    condition.is_empty("empty"),
    condition.is_empty("no"),
    condition.is_not_empty("zero"),
    condition.is_not_empty("text"),
    condition.contains_any("tags", ["star", "moon"]),
    condition.contains_any("text", ["fall", "rise"]),
    condition.contains_all("tags", ["moon", "sea"]),
    condition.contains_all("text", ["Tides", "rise"]),
    condition.contains_all("tags", []),
]
DO_NOT_HOLD = [
    condition.equals("score", 8),
    condition.equals("score", "7"),
    condition.equals("missing", None),
    condition.equals("yes", 1),
    condition.equals("zero", False),
    condition.not_equals("score", 7),
    condition.exists("none"),
    condition.exists("missing"),
    condition.not_exists("score"),
    condition.greater_than("score", 7),
    condition.greater_than("missing", 0),
    condition.greater_than("text", 1),
    condition.greater_than("none", 1),
    condition.greater_than_or_equal("missing", 0),
    condition.less_than("missing", 10),
    condition.less_than("tags", 10),
    condition.less_than_or_equal("score", 6),
    condition.contains("text", "moon"),
    condition.contains("text", 3),
    condition.contains("tags", "sta"),
    condition.contains("score", 7),
    condition.contains("missing", "x"),
    condition.starts_with("text", "tides"),
    condition.starts_with("score", "7"),
    condition.starts_with("missing", ""),
    condition.ends_with("text", "Tides"),
    condition.ends_with("tags", "moon"),
    condition.matches_regex("text", "TIDES"),
    condition.matches_regex("score", "7"),
    condition.matches_regex("missing", ".*"),
    condition.is_empty("zero"),
    condition.is_empty("yes"),
    condition.is_not_empty("blank"),
    condition.is_not_empty("missing"),
    condition.contains_any("tags", ["star"]),
    condition.contains_any("tags", []),
    condition.contains_any("missing", ["x"]),
    condition.contains_any("score", [7]),
    condition.contains_all("tags", ["sea", "star"]),
    condition.contains_all("missing", []),
]


@pytest.mark.parametrize("case", HOLD, ids=str)
def test_a_condition_holds(case: Condition) -> None:
    assert case.holds(OUTPUTS)
    assert not condition.not_(case).holds(OUTPUTS)


@pytest.mark.parametrize("case", DO_NOT_HOLD, ids=str)
def test_a_condition_does_not_hold(case: Condition) -> None:
    assert not case.holds(OUTPUTS)
    assert (~case).holds(OUTPUTS)


TRUE, FALSE = condition.equals("score", 7), condition.equals("score", 8)


@pytest.mark.parametrize(
    ("joined", "expected"),
    [
        (condition.and_(TRUE, TRUE, TRUE), True),
        (condition.and_(TRUE, TRUE, FALSE), False),
        (condition.or_(FALSE, FALSE, TRUE), True),
        (condition.or_(FALSE, FALSE), False),
        (condition.not_(condition.and_(TRUE, FALSE)), True),
        (TRUE & FALSE, False),
        (TRUE & ~FALSE, True),
        (FALSE | TRUE, True),
        ((TRUE | FALSE) & (FALSE | FALSE), False),
        (~(FALSE | FALSE), True),
    ],
)
def test_conditions_are_joined(joined: Condition, expected: bool) -> None:
    assert joined.holds(OUTPUTS) is expected


def test_a_condition_reads_as_a_sentence() -> None:
    assert str(condition.greater_than("score", 6)) == "score greater than 6"
    assert str(condition.is_empty("tags")) == "tags is empty"
    assert str(condition.always()) == "always"
    joined = (condition.equals("a", 1) | condition.exists("b")) & ~condition.contains("c", "x")
    assert str(joined) == "(a equals 1 or b exists) and (not c contains 'x')"


def test_a_condition_names_the_fields_it_asks_about() -> None:
    joined = condition.and_(condition.equals("a", 1), condition.not_(condition.exists("b.c")))
    assert list(joined.fields) == ["a", "b.c"]


def test_the_types_of_conditions_are_these() -> None:
    from perdure.agent_workflow.condition import TYPES

    tried = {case.type for case in (*HOLD, *DO_NOT_HOLD)} | {"and", "or", "not"}
    assert tried == TYPES


@pytest.mark.parametrize(("value", "other"), [([True], [1]), ({"a": [True]}, {"a": [1]}), ([0], [False])])
def test_true_does_not_equal_1_at_any_depth(value: object, other: object) -> None:
    assert not condition.equals("x", other).holds({"x": value})
    assert condition.equals("x", value).holds({"x": value})
