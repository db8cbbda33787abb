"""Broken, odd or hostile files are reported with line and column, and do no harm."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent_workflow.document_parts import agent, problems_in_file, problems_of

from perdure.agent_workflow.documents.convert import read_draft
from perdure.agent_workflow.documents.text import read_text
from perdure.errors import MissingExtra


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '{"name": "w",\n "agents": {"a": 1, b}}',
            "line 2, column 21: not JSON: Expecting property name enclosed in double quotes",
        ),
        ('{"name": "w"', "line 1, column 13: not JSON: Expecting ',' delimiter"),
        ("", "line 1, column 1: not JSON: Expecting value"),
        ("[]", "expected a mapping, got []"),
        ('{"name": NaN}', "not JSON: NaN is not a JSON number"),
        ('{"name": "w", "agents": {"a": {}, "b": {}, "a": {}}}', "agents.a: the key occurs twice"),
        (b'{"name": "\xff"}', "the file is not UTF-8, from byte 10 on"),
        ("[" * 200 + "]" * 200, "nested too deeply: at most 100 levels of mappings and lists"),
        ("[" * 100_000, "nested too deeply: at most 100 levels of mappings and lists"),
    ],
)
def test_broken_json_file_is_reported_with_line_and_column(tmp_path: Path, text: str | bytes, problem: str) -> None:
    assert problems_in_file(tmp_path / "w.json", text) == [problem]


FLOW = "not YAML: while parsing a flow node, expected the node content, but found '<stream end>'"
TAB = "not YAML: while scanning for the next token, found character '\\t' that cannot start any token"
SECOND = "not YAML: expected a single document in the stream, but found another document"
SEQUENCE = "expected a text as key, got a sequence; write it in quotes"
NO_TAG = "is not allowed: a workflow is plain data"
MERGE = "merge keys (<<) are not supported: write the keys down"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "name: w\nagents:\n  a: [\n",
            f"line 4, column 1: {FLOW}",
        ),
        ("name: w\nagents: a: b", "line 2, column 10: not YAML: mapping values are not allowed here"),
        ("name: w\n\tagents: 3", f"line 2, column 1: {TAB}"),
        ("name: w\x01", "line 1, column 8: not YAML: the character '\\x01' is not allowed"),
        ("", "expected a mapping, got null"),
        ("name: w\n---\nname: v", f"line 2, column 1: {SECOND}"),
        ("name: w\nagents:\n  a: {agent: x}\n  a: {agent: y}\n", "agents.a: line 4, column 3: the key occurs twice"),
        ("name: w\nagents: {1: 2}", "agents: line 2, column 10: expected a text as key, got 1; write it in quotes"),
        ("name: w\nagents: {[a]: 2}", f"agents: line 2, column 10: {SEQUENCE}"),
        (
            "name: !!python/object/apply:os.system [ls]",
            f"name: line 1, column 7: the tag 'tag:yaml.org,2002:python/object/apply:os.system' {NO_TAG}",
        ),
        ("name: !own x", f"name: line 1, column 7: the tag '!own' {NO_TAG}"),
        ("name: !!int x", "name: line 1, column 7: expected a value of 'tag:yaml.org,2002:int', got 'x'"),
        ("name: &a [*a]", "name[0]: line 1, column 7: an alias that contains itself"),
        ("x: &x {a: 1}\nname: {<<: *x}", f"name: line 2, column 8: {MERGE}"),
        ("[" * 1000 + "]" * 1000, "nested too deeply: at most 100 levels of mappings and lists"),
    ],
)
def test_broken_yaml_file_is_reported_with_line_and_column(tmp_path: Path, text: str, problem: str) -> None:
    assert problems_in_file(tmp_path / "w.yaml", text) == [problem]


def test_aliases_of_aliases_are_rejected_before_they_fill_the_memory(tmp_path: Path) -> None:
    levels = "\n".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 12))
    problem = "too large: at most 200,000 values, including those that aliases repeat"
    assert problems_in_file(tmp_path / "w.yaml", f"a0: &a0 lol\n{levels}\n") == [problem]


def test_alias_repeats_the_value_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(
        f"name: w\nagents:\n  a: {{agent: '{agent()}', retry: &often {{max_attempts: 5}}}}\n"
        f"  b: {{agent: '{agent()}', retry: *often}}\n"
    )
    nodes = read_draft(path).nodes
    assert nodes["b"].config.retry == nodes["a"].config.retry
    assert nodes["b"].config.retry is not None and nodes["b"].config.retry.max_attempts == 5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("n", "n"),
        ("2026-11-15", "2026-11-15"),
        ("2026-11-15T10:00:00Z", "2026-11-15T10:00:00Z"),
        ("12:30", "12:30"),
        ("1.2.3", "1.2.3"),
        ("1_000", "1_000"),
        ("0x1f", "0x1f"),
        (".inf", ".inf"),
        (".", "."),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("010", 10),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
    ],
)
def test_yaml_scalars_are_read_as_json_values(text: str, value: Any) -> None:
    [read] = read_text(f"- {text}", "yaml")
    assert (read, type(read)) == (value, type(value))


def test_keys_of_yaml_that_look_like_something_else_are_texts() -> None:
    assert read_text("{yes: 1, on: 2, 2026-11-15: 3}", "yaml") == {"yes": 1, "on": 2, "2026-11-15": 3}


def test_without_pyyaml_json_is_read_and_yaml_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "w.yaml"
    path.write_text("name: w")
    with pytest.raises(
        MissingExtra, match=r"A workflow in YAML needs the package 'pyyaml'.*pip install 'perdure\[yaml\]'"
    ):
        read_draft(path)
    (tmp_path / "w.json").write_text('{"name": "w"}')
    assert read_draft(tmp_path / "w.json").config.name == "w"


def test_folder_is_rejected_as_a_document(tmp_path: Path) -> None:
    (tmp_path / "w.json").mkdir()
    assert problems_of(tmp_path / "w.json") == [f"{tmp_path / 'w.json'}: the file cannot be read: Is a directory"]
