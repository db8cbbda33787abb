"""assert_survives_kill: real processes, really killed."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.six_methods import SixMethods
from tests.unit.testing import durable, outliving

from perdure import InMemoryCheckpointStorage
from perdure.checkpoints.encode import tool_codec
from perdure.testing import assert_survives_kill
from perdure.testing.kill import ChildFailed, child
from perdure.testing.processes import Importable, importable


def order(folder: Path, **more: Any) -> dict[str, Any]:
    """For one process of the workflow `doubled_twice`."""
    return {
        "path": [str(Path(folder).absolute()) for folder in sys.path],
        "workflow": asdict(importable("make_workflow", durable.doubled_twice)),
        "storage": asdict(importable("storage", durable.diary)),
        "message": tool_codec().encode(3, "message"),
        "answers": None,
        "folder": str(folder),
        "stop_at": None,
        **more,
    }


async def test_process_killed_at_its_stop_leaves_what_it_had_recorded(tmp_path: Path) -> None:
    stop_at = {"point": "journal", "nth": 2, "when": "after"}
    async with child(order(tmp_path, stop_at=stop_at), tmp_path / "stderr", 20) as first:
        await first.expect("started")
        assert await first.expect("reached") == {"reached": stop_at}
        assert first.recorded == [["double", None, 2]]
        assert await first.was_killed()
        assert first.process.returncode == -signal.SIGKILL
    async with child(order(tmp_path), tmp_path / "stderr", 20) as second:
        assert (await second.expect("started"))["has_begun"]
        ended = (await second.expect("ended"))["ended"]
    assert ended["rests"][-1]["outputs"] == [28]
    assert ended["calls"] == [["doubled_twice", None, 1], ["double", None, 1]]


async def test_a_process_that_waits_does_nothing_more_and_ends_with_its_parent(tmp_path: Path) -> None:
    stop_at = {"point": "commit", "nth": 1, "when": "before"}
    async with child(order(tmp_path, stop_at=stop_at), tmp_path / "stderr", 20) as process:
        await process.expect("started")
        await process.expect("reached")
        assert process.process.stdin is not None
        process.process.stdin.close()  # as it happens when the parent dies
        assert await process.receive() is None
        assert await process.process.wait() == 1


async def test_a_workflow_on_six_methods_survives_kills_at_every_save(capfd: pytest.CaptureFixture[str]) -> None:
    survival = await assert_survives_kill(
        durable.noting, " hat ", storage=durable.FolderStorage, random_kills=1, seed=7
    )
    assert "assert_survives_kill: seed 7" in capfd.readouterr().out
    saves = {f"{when} commit {nth}" for nth in (1, 2) for when in ("before", "after")}
    assert saves <= set(survival.points)
    assert len(survival.points) == len(saves) + 1 and survival.seed == 7


@pytest.mark.parametrize("storage", [outliving.files, outliving.sqlite_file])
async def test_a_workflow_in_files_or_in_sqlite_survives_kills_at_every_write(storage: Any) -> None:
    survival = await assert_survives_kill(outliving.halved, 6, storage=storage, random_kills=1)
    writes = {f"{when} {write}" for write in ("commit 1", "journal 1", "commit 2") for when in ("before", "after")}
    assert writes <= set(survival.points)
    assert len(survival.points) == len(writes) + 1


async def test_a_driver_that_forgets_what_it_recorded_does_not_survive() -> None:
    with pytest.raises(AssertionError, match=r"'double' is called 3 times.*and yet it was called 3 times after"):
        await assert_survives_kill(durable.doubled_twice, 3, storage=durable.forgetful_diary, random_kills=0)


async def test_questions_are_answered_in_the_process_that_meets_them(tmp_path: Path) -> None:
    details = {
        "workflow": {"module": "tests.unit.testing.durable", "name": "parcels", "file": None},
        "storage": asdict(importable("storage", durable.FolderStorage)),
        "message": "hat",
    }
    stop_at = {"point": "commit", "nth": 3, "when": "after"}  # it has asked
    async with child(order(tmp_path, **details, stop_at=stop_at), tmp_path / "stderr", 20) as first:
        await first.expect("started")
        await first.expect("reached")
        await first.was_killed()
    answers = asdict(importable("answers", durable.answer_to))
    async with child(order(tmp_path, **details, answers=answers), tmp_path / "stderr", 20) as second:
        await second.expect("started")
        ended = (await second.expect("ended"))["ended"]
    assert [rest["outputs"] for rest in ended["rests"]] == [[], ["hat: 15 letters"]]


@pytest.mark.parametrize("storage", [InMemoryCheckpointStorage, InMemoryCheckpointStorage(), durable.in_memory])
async def test_a_storage_in_memory_is_refused_with_what_to_use_instead(storage: Any) -> None:
    with pytest.raises(TypeError, match=r"outlives the process.*FileCheckpointStorage.*SqliteCheckpointStorage"):
        await assert_survives_kill(durable.doubled_twice, 3, storage=storage)


async def test_a_storage_that_another_process_finds_empty_is_refused() -> None:
    with pytest.raises(TypeError, match="outlives the process, and six_in_memory does not"):
        await assert_survives_kill(durable.noting, "hat", storage=durable.six_in_memory)


async def test_error_of_the_code_under_test_is_reported_with_its_traceback(tmp_path: Path) -> None:
    async with child(order(tmp_path, message="no number"), tmp_path / "stderr", 20) as process:
        await process.expect("started")
        with pytest.raises(ChildFailed, match=r"Traceback(.|\n)*WrongInputType"):
            await process.expect("ended")


async def test_process_that_ends_by_itself_is_reported_with_its_stderr(tmp_path: Path) -> None:
    missing = {"module": "tests.unit.testing.durable", "name": "leave", "file": None}
    async with child(order(tmp_path, workflow=missing), tmp_path / "stderr", 20) as process:
        with pytest.raises(ChildFailed, match="ended with 3 and wrote to stderr: I am leaving"):
            await process.expect("started")
        assert not await process.was_killed()  # it was not killed, and the result must not claim so


async def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(ChildFailed, match=r"within 0\.01 seconds"):
        async with child(order(tmp_path), tmp_path / "stderr", 0.01) as process:
            await process.expect("ended")
    assert process.process.returncode == -signal.SIGKILL


# ---------------------------------------------------------------- what another process can import


def test_functions_classes_and_function_workflows_are_found_by_name() -> None:
    for thing in (durable.parcels, durable.FolderStorage, durable.doubled_twice):
        assert importable("it", thing).load() is thing
    assert importable("it", "tests.six_methods:SixMethods").load() is SixMethods


def test_a_module_that_has_no_importable_name_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "script_of_a_user.py"
    file.write_text("def made() -> str:\n    return 'made'\n", encoding="utf-8")
    assert Importable("script_of_a_user", "made", str(file)).load()() == "made"
    with pytest.raises(ModuleNotFoundError):
        Importable("script_of_nobody", "made").load()


@pytest.mark.parametrize("thing", [lambda storage: None, SixMethods().save, 3, "no colon"])
def test_argument_that_cannot_be_imported_is_refused_by_parameter(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"make_workflow .*'module:function'"):
        importable("make_workflow", thing)
