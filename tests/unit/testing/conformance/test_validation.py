"""validate and StoreConformance: their reports on a store, sound or broken, and on clauses that do not apply."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.testing.conformance.broken_disks import BelievesWhatItReads
from tests.unit.testing.conformance.broken_owning import NeverReleases
from tests.unit.testing.conformance.passing import OnDisk, Passing

from perdure.records import Lease
from perdure.store import Store
from perdure.stores.memory.store import MemoryStore
from perdure.testing.conformance import StoreConformance, validate
from perdure.testing.conformance.suite import all_clauses

NEW = "a_new_thread_opens_empty"
RELEASED = "a_release_frees_the_thread_of_its_lease_and_no_other_owners"
KILLED = "the_thread_of_a_killed_owner_can_be_opened_at_once"


async def test_report_has_a_line_for_each_clause_and_grows_line_by_line() -> None:
    lines: list[str] = []
    report = await validate(Passing, shared=False, tell=lines.append)
    assert report.ok and not report.failures
    assert [each.name for each in report.results] == [each.name for each in all_clauses()]
    assert "\n".join(lines) == str(report)
    assert "  passed          a new thread opens empty" in lines
    why = "it needs processes that use the same store, and this one lives in one object"
    assert f"  not applicable  the thread of a killed owner can be opened at once, because {why}" in lines
    summary = rf"Passing: \d+ passed, {len(report.not_applicable)} not applicable, in \d+\.\d s, seed {report.seed}"
    assert re.fullmatch(summary, lines[-1])


async def test_failure_names_in_a_sentence_what_the_store_did_instead(capsys: pytest.CaptureFixture[str]) -> None:
    report = await validate(NeverReleases, shared=False, only=[NEW, RELEASED])
    assert not report.ok
    [failure] = report.failures
    assert (failure.name, failure.outcome) == (RELEASED, "FAILED")
    assert failure.reason == "the owners after the release[0]: expected None, got 'run-1'"
    printed = capsys.readouterr().out
    assert f"  FAILED          {RELEASED.replace('_', ' ')}: {failure.reason}\n" in printed
    assert "NeverReleases: 1 passed, 1 FAILED, in" in printed


async def test_seed_gives_the_same_failures_whichever_clauses_are_selected() -> None:
    only = "a_changed_byte_anywhere_gives_no_other_bytes"
    whole = await validate(BelievesWhatItReads, only="damage", seed=7, tell=None)
    alone = await validate(BelievesWhatItReads, only=only, seed=7, tell=None)
    assert [result.reason for result in alone.failures] == [
        result.reason for result in whole.failures if result.name == only
    ]
    another = await validate(BelievesWhatItReads, only=only, seed=8, tell=None)
    assert alone.failures and str(another.results) != str(alone.results)


async def test_factory_may_be_a_name_and_without_a_name_uses_no_processes() -> None:
    named = await validate(f"{OnDisk.__module__}:OnDisk", only=[NEW, KILLED], tell=None)
    assert [result.outcome for result in named.results] == ["passed", "passed"]
    unnamed = await validate(lambda folder: OnDisk(folder / "store"), only=[NEW, KILLED], tell=None)
    assert [result.outcome for result in unnamed.results] == ["passed", "not applicable"]
    assert "another process cannot import <function" in unnamed.not_applicable[0].reason


async def test_invalid_factory_is_refused() -> None:
    wrong: Any = Passing(Path())
    with pytest.raises(TypeError, match="must take a folder"):
        await validate(wrong)
    with pytest.raises(TypeError, match="expects 'module:function'"):
        await validate("no_function")
    with pytest.raises(ModuleNotFoundError, match="no_module"):
        await validate("no_module:make")


def make_without_a_folder() -> Passing:
    return Passing(Path())


@pytest.mark.parametrize("factory", [MemoryStore, make_without_a_folder], ids=["a class", "a function"])
async def test_a_factory_that_takes_no_folder_is_rejected_before_any_clause(factory: Any) -> None:
    lines: list[Any] = []
    with pytest.raises(TypeError, match=r"is called with a folder: def make_store\(folder: Path\) -> Store"):
        await validate(factory, tell=lines.append)
    assert lines == []


class Hangs(Passing):
    async def release(self, lease: Lease) -> None:
        await asyncio.Event().wait()


class CannotBeMade(Passing):
    def __init__(self, folder: Path) -> None:
        raise OSError("no such disk")


async def test_store_that_hangs_or_cannot_be_made_fails_only_its_clause() -> None:
    report = await validate(Hangs, shared=False, only=[NEW, RELEASED], seconds=0.2, tell=None)
    assert [result.outcome for result in report.results] == ["passed", "FAILED"]
    assert report.failures[0].reason == "it did not end within 0.2 s"
    report = await validate(CannotBeMade, shared=False, only=[NEW, RELEASED], tell=None)
    assert [result.reason for result in report.failures] == ["the store raised OSError: no such disk"] * 2


# ---------------------------------------------------------------- as tests

TEST_OF_A_STRANGER = """
from pathlib import Path

from perdure.stores.memory.store import MemoryStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.conformance import StoreConformance


class Forgetful(MemoryStore):
    async def release(self, lease):
        pass


class TestMine(StoreConformance):
    def make_store(self, folder):
        return SqliteStore(folder / "mine.db", synchronous="OFF")


class TestForgetful(StoreConformance):
    shared = False
    seed = 5

    def make_store(self, folder):
        return Forgetful()
"""


def test_user_who_derives_a_class_has_a_test_for_each_clause(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST_OF_A_STRANGER, encoding="utf-8")
    chosen = f"{NEW} or {RELEASED} or {KILLED}"
    options = ["-q", "-ra", "-W", "error", "-p", "no:cacheprovider", "-k", chosen]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PERDURE"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "1 failed, 4 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    sentence = RELEASED.replace("_", " ")
    assert f"{sentence}: the owners after the release[0]: expected None, got 'run-1'" in done.stdout
    assert "The contract says: Release the thread." in done.stdout and "(seed = 5)" in done.stdout
    assert "not applicable, because it needs processes that use the same store" in done.stdout


def test_class_without_make_store_raises_an_error_that_asks_for_it() -> None:
    class Unfinished(StoreConformance):
        pass

    with pytest.raises(AssertionError, match="must implement make_store"):
        Unfinished()._try(all_clauses()[0])


def test_a_class_inside_a_function_cannot_be_found_by_other_processes() -> None:
    class Inside(StoreConformance):
        def make_store(self, folder: Path) -> Store:
            return OnDisk(folder)

    [killed] = [clause for clause in all_clauses() if clause.name == KILLED]
    with pytest.raises(Exception, match=r"another process cannot import .*Inside"):
        Inside()._try(killed)
