"""The reference names each table, column and index of PostgreSQL, and the how-to page creates the same indexes."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.stores.postgres.schema import TABLES

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference" / "postgresql.md"
HOW_TO = DOCS / "how-to" / "storage" / "run-on-postgresql.md"


def columns() -> dict[str, list[str]]:
    """The columns of each table."""
    code = re.sub(r"--.*", "", TABLES)
    bodies = re.findall(r"CREATE TABLE \{s\}\.(\w+) \((.*?)\)(?: WITH \([^)]*\))?;", code, re.DOTALL)
    return {
        name: [word for word in re.findall(r"(?:^|,)\s*(\w+) [a-z]", body, re.MULTILINE) if word != "PRIMARY"]
        for name, body in bodies
    }


def indexes(code: str) -> dict[str, str]:
    """The definition of each index, without its settings."""
    matches = re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+) ON \S+\.(\w+ .*?);", re.sub(r"\s+", " ", code))
    return {name: re.sub(r" WITH \([^)]*\)", "", made) for name, made in matches}


def test_columns_come_from_the_schema() -> None:
    assert columns()["meta"] == ["version"]
    assert columns()["requests"][:2] == ["thread", "request_id"]
    assert {"number", "root", "chunks"} < set(columns()["commits"])


def test_reference_names_exactly_the_tables_columns_and_indexes() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", text))
    known = {name for table, names in columns().items() for name in (table, *names)} | indexes(TABLES).keys()
    assert sorted(known - named) == []
    cells = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*\|[^|]*)\|", text, re.MULTILINE))))
    assert {name for name in cells if "_" in name} <= known | {"digest:length"}


def test_partitioned_table_has_the_indexes_of_the_table_it_replaces() -> None:
    [recipe] = [
        sql for sql in re.findall(r"```sql\n(.*?)```", HOW_TO.read_text(encoding="utf-8"), re.DOTALL) if "HASH" in sql
    ]
    mine = {name: made for name, made in indexes(TABLES).items() if name.startswith("commits_")}
    assert indexes(recipe) == mine
    [target] = re.findall(r"toast_tuple_target = \d+", TABLES)
    assert target in recipe
