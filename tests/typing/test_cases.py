"""Wrong programs are type errors, right ones are not: mypy reads tests/typing/cases and must agree with its marks."""

from __future__ import annotations

import re
from pathlib import Path

import mypy.api
import pytest

ROOT = Path(__file__).parents[2]
CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))

MARK = re.compile(r"# expect: error \[(?P<codes>[a-z, -]+)\]")
ERROR = re.compile(
    r"^(?P<file>[^:]+):(?P<line>\d+)(?::\d+)?: error: (?P<text>.*?)  \[(?P<code>[a-z-]+)\]$", re.MULTILINE
)


def expected() -> dict[tuple[str, int], set[str]]:
    """For each marked line the codes of which mypy may choose one."""
    return {
        (path.name, number): set(mark["codes"].split(", "))
        for path in CASES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (mark := MARK.search(line))
    }


def reported() -> dict[tuple[str, int], list[str]]:
    """What mypy reports for each line. One run for all files, on the cache that `make check` has filled."""
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    printed, problem, _ = mypy.api.run([*settings, *map(str, CASES)])
    assert not problem, problem
    errors: dict[tuple[str, int], list[str]] = {}
    for error in ERROR.finditer(printed):
        errors.setdefault((Path(error["file"]).name, int(error["line"])), []).append(error[0])
    return errors


@pytest.mark.timeout(120)  # an empty cache makes mypy read everything once
def test_wrong_programs_are_type_errors_and_right_ones_are_not() -> None:
    errors, marked = reported(), expected()
    surprises = [text for place, texts in errors.items() if place not in marked for text in texts]
    assert not surprises, "\n".join(["right programs that mypy refuses:", *surprises])
    unnoticed = [
        f"{file}:{line} expected one of {sorted(codes)}, got {errors.get((file, line), 'nothing')}"
        for (file, line), codes in marked.items()
        if not any(f"[{code}]" in text for code in codes for text in errors.get((file, line), []))
    ]
    assert not unnoticed, "\n".join(["mistakes that mypy did not notice as marked:", *unnoticed])
