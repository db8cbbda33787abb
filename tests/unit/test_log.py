"""Loggers `perdure.*`: silent by default, readable with one variable."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from perdure.log import get_logger

LOG_TWO_LINES = """
import perdure
from perdure.log import get_logger
get_logger("perdure.engine.run.loop").debug("superstep 3 began")
get_logger("perdure.engine.run.loop").warning("superstep 3 was slow")
"""


def stderr_of(code: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PERDURE_LOG"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | environment, capture_output=True, text=True, check=True
    )
    return done.stderr


def test_nothing_is_printed_by_default() -> None:
    assert stderr_of(LOG_TWO_LINES) == ""


def test_the_variable_shows_lines_of_its_level_and_above_once_each() -> None:
    everything = stderr_of(LOG_TWO_LINES, PERDURE_LOG="debug").splitlines()
    assert [line.partition("perdure.engine.run.loop: ")[2] for line in everything] == [
        "superstep 3 began",
        "superstep 3 was slow",
    ]
    assert len(stderr_of(LOG_TWO_LINES, PERDURE_LOG="WARNING").splitlines()) == 1


def test_configuring_twice_prints_each_line_once() -> None:
    code = "from perdure.log import configure_from_environment as again; again()" + LOG_TWO_LINES
    assert len(stderr_of(code, PERDURE_LOG="warning").splitlines()) == 1


def test_a_level_that_does_not_exist_is_named_and_info_is_used() -> None:
    first, *_ = stderr_of(LOG_TWO_LINES, PERDURE_LOG="loud").splitlines()
    assert "PERDURE_LOG=loud is not a level; using info. Levels: debug, info" in first


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("perdure", "perdure"), ("perdure.engine", "perdure.engine"), ("worker", "perdure.worker")],
)
def test_every_logger_is_below_perdure(asked: str, expected: str) -> None:
    assert get_logger(asked).name == expected
