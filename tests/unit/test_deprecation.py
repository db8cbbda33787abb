"""What is deprecated says what to write instead, at the user's line, and is gone when its version has come."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

import pytest

import perdure
from perdure.deprecation import deprecated

SOURCE = Path(perdure.__file__).parent

Version = tuple[int, ...]


def within_the_package(function: Callable[..., object], module: str) -> Callable[..., object]:
    """The function as if it stood in a module of that name."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**function.__globals__, "__name__": module}, function.__name__)


def old_name() -> str:
    deprecated("old_name", instead="new_name", since="1.2", removed_in="2.0")
    return "still does its work"


def outer(inner: Callable[[], object]) -> object:
    return inner()


def test_the_sentence_names_both_names_and_both_versions() -> None:
    with pytest.deprecated_call() as told:
        assert old_name() == "still does its work"
    [warning] = told
    assert str(warning.message) == (
        "old_name is deprecated since perdure 1.2 and will be removed in 2.0. Use new_name instead."
    )


def test_the_warning_is_put_down_to_the_users_line_however_deep_the_name_sits() -> None:
    inner = within_the_package(old_name, "perdure.engine.anything")
    through = within_the_package(outer, "perdure")
    with pytest.deprecated_call() as told:
        inner()
        through(inner)
        line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]  # CPython has frames
    assert [(warning.filename, warning.lineno) for warning in told] == [(__file__, line - 1), (__file__, line)]


def test_a_package_whose_name_begins_alike_is_not_taken_for_ours() -> None:
    theirs = within_the_package(old_name, "perdure_tools.use")
    with pytest.deprecated_call() as told:
        theirs()
    assert (told[0].filename, told[0].lineno) == (__file__, old_name.__code__.co_firstlineno + 1)


def test_a_program_that_makes_warnings_errors_is_stopped_there() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeprecationWarning, match="Use new_name instead"):
            old_name()


# ---------------------------------------------------------------- the policy, over the source


def version_of(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def deprecations(source: str) -> Iterator[dict[str, str]]:
    """Every call of `deprecated`, with its arguments: they are written out, so that they can be found."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "deprecated":
            yield {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in node.keywords}


def breaks_the_policy(call: dict[str, str], current: Version) -> str:
    """Why the call may not stay as it is; empty if it may."""
    since, removed_in = version_of(call["since"]), version_of(call["removed_in"])
    if removed_in <= current:
        return f"remove it: {call['removed_in']} has come"
    if since >= (1, 0) and (removed_in[0] <= since[0] or any(removed_in[1:])):
        return "after 1.0 names go only with a major version"
    if removed_in[:1] == since[:1] and removed_in[1] - since[1] < 2:
        return "it stays for two minor versions at least"
    return ""


def test_every_deprecation_in_the_source_keeps_to_the_policy() -> None:
    current = version_of(perdure.__version__)
    calls = [call for path in SOURCE.rglob("*.py") for call in deprecations(path.read_text(encoding="utf-8"))]
    wrong = [(call, reason) for call in calls if (reason := breaks_the_policy(call, current))]
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("since", "removed_in", "current", "reason"),
    [
        ("1.2", "2.0", "1.3.0", ""),
        ("1.2", "2.0", "2.0.0", "has come"),
        ("1.2", "1.4", "1.3.0", "only with a major"),
        ("1.2", "2.1", "1.3.0", "only with a major"),
        ("0.2", "0.4", "0.3.1", ""),
        ("0.2", "1.0", "0.9.0", ""),
        ("0.2", "0.3", "0.2.0", "two minor versions"),
        ("0.2", "0.4", "0.4.0", "has come"),
    ],
)
def test_the_policy_tells_what_may_stay(since: str, removed_in: str, current: str, reason: str) -> None:
    source = f"def old():\n    deprecated('old', instead='new', since='{since}', removed_in='{removed_in}')\n"
    [call] = deprecations(source)
    found = breaks_the_policy(call, version_of(current))
    assert reason in found
    assert bool(found) == bool(reason)
