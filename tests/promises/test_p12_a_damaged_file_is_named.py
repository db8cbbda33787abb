"""Promise 12 in the folder of a file store: flipped bits, lost ends, missing and foreign files, newer versions."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.promises.damage import WRITTEN, assert_threads_continue, flip, is_refused, write
from tests.promises.processes import Place
from tests.promises.stages import Stage, ledger

from perdure import NewerFormat, WorkflowCheckpointException
from perdure.stores.file.lines import FileThreadLine, to_line


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """With threads `t`, `other` and `half`; closed."""
    async with place_of(tmp_path / "threads").storage() as storage:
        head_id = await write(storage)
    (tmp_path / "head").write_text(head_id)
    return tmp_path / "threads"


def place_of(folder: Path) -> Place:
    return Place("file", folder.parent)


def head_of(folder: Path) -> str:
    return (folder.parent / "head").read_text()


def lines(folder: Path) -> list[bytes]:
    return (folder / "t.jsonl").read_bytes().splitlines(keepends=True)


async def test_flipped_bit_in_any_part_of_a_head_is_an_error_that_names_it(folder: Path) -> None:
    whole = (folder / "t.jsonl").read_bytes()
    start = len(whole) - len(lines(folder)[-1])
    for place in range(start, len(whole), 97):
        flip(folder / "t.jsonl", place)
        await is_refused(place_of(folder), "t", head_of(folder))
        (folder / "t.jsonl").write_bytes(whole)
    await assert_threads_continue(place_of(folder), "t", "other", "half")


async def test_flipped_bit_in_the_middle_is_found_when_the_file_is_read_again(folder: Path) -> None:
    whole = (folder / "t.jsonl").read_bytes()
    end = len(whole) - len(lines(folder)[-1])
    index = (folder / "index.db").read_bytes()
    for place in range(0, end, 211):
        flip(folder / "t.jsonl", place)
        (folder / "index.db").unlink()
        await is_refused(place_of(folder), "t")
        (folder / "t.jsonl").write_bytes(whole)
        (folder / "index.db").write_bytes(index)
    flip(folder / "t.jsonl", end // 2)
    (folder / "index.db").unlink()
    await assert_threads_continue(place_of(folder), "other", "half")


@pytest.mark.parametrize("lost", [1, 100, 3000])
async def test_a_file_that_lost_its_end_is_an_error_and_not_cut(folder: Path, lost: int) -> None:
    """What is gone was acknowledged, so it is not a line that was never finished."""
    path = folder / "t.jsonl"
    path.write_bytes(path.read_bytes()[:-lost])
    before = path.read_bytes()
    await is_refused(place_of(folder), "t", head_of(folder))
    assert path.read_bytes() == before
    await assert_threads_continue(place_of(folder), "other", "half")


async def test_a_file_that_lost_a_line_of_its_journal_is_an_error(folder: Path) -> None:
    """Its head is whole, and the index still has what is gone; but what comes next would stand in the wrong place."""
    path = folder / "half.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    await is_refused(place_of(folder), "half")
    await assert_threads_continue(place_of(folder), "t", "other")


async def test_a_line_that_was_never_finished_is_cut_off(folder: Path) -> None:
    with (folder / "t.jsonl").open("ab") as file:
        file.write(lines(folder)[-1][:-50])
    await assert_threads_continue(place_of(folder), "t", "other", "half")


async def test_a_file_that_is_gone_is_an_error(folder: Path) -> None:
    (folder / "t.jsonl").unlink()
    await is_refused(place_of(folder), "t", head_of(folder))
    await assert_threads_continue(place_of(folder), "other", "half")


async def test_the_file_of_another_thread_under_this_name_is_an_error(folder: Path) -> None:
    shutil.copy(folder / "other.jsonl", folder / "t.jsonl")
    await is_refused(place_of(folder), "t")
    (folder / "index.db").unlink()
    await is_refused(place_of(folder), "t")
    await assert_threads_continue(place_of(folder), "other", "half")


async def test_a_line_of_another_thread_in_this_file_is_an_error(folder: Path) -> None:
    foreign = (folder / "other.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "t.jsonl").write_bytes(b"".join([*lines(folder)[:2], foreign[2], *lines(folder)[3:]]))
    (folder / "index.db").unlink()
    await is_refused(place_of(folder), "t")
    await assert_threads_continue(place_of(folder), "other", "half")


async def test_a_lost_line_in_the_middle_is_an_error(folder: Path) -> None:
    (folder / "t.jsonl").write_bytes(b"".join([*lines(folder)[:2], *lines(folder)[3:]]))
    (folder / "index.db").unlink()
    await is_refused(place_of(folder), "t")
    await assert_threads_continue(place_of(folder), "other", "half")


FOREIGN = {
    "lines": b'{"level": "info"}\n{"level": "warning"}\n',
    "line": b'{"level": "info"}\n',
    "text": b"a line without an end",
    "binary": bytes(range(256)) * 20,
}


async def test_foreign_files_in_the_folder_disturb_no_thread(folder: Path) -> None:
    for name, content in FOREIGN.items():
        (folder / f"{name}.jsonl").write_bytes(content)
    (folder / "notes.txt").write_text("ours")
    (folder / "empty.jsonl").touch()
    (folder / "folder.jsonl").mkdir()
    (folder / "t.jsonl.bak").write_bytes(b"x")
    (folder / "t.0badcafe.new").write_bytes(b"half a rewrite")
    (folder / "index.db").unlink()
    await assert_threads_continue(place_of(folder), "t", "other", "half")
    async with place_of(folder).storage() as storage:
        assert {thread.thread_id for thread in await storage.list_threads()} == {"t", "other", "half"}


@pytest.mark.parametrize("name", FOREIGN)
async def test_foreign_file_with_the_name_of_a_thread_is_an_error_and_is_kept(folder: Path, name: str) -> None:
    path = folder / f"{name}.jsonl"
    path.write_bytes(FOREIGN[name])
    await is_refused(place_of(folder), name)
    assert path.read_bytes() == FOREIGN[name]


async def test_a_folder_in_the_place_of_a_threads_file_is_an_error(folder: Path) -> None:
    (folder / "new.jsonl").mkdir()
    async with place_of(folder).storage() as storage:
        with pytest.raises(WorkflowCheckpointException, match=r"new\.jsonl"):
            await ledger(Stage(), storage).run("x", thread_id="new")
    await assert_threads_continue(place_of(folder), "t", "other", "half")


async def test_a_file_of_a_newer_version_is_refused_as_such(folder: Path) -> None:
    first = to_line("t", FileThreadLine("t", version=99))
    (folder / "t.jsonl").write_bytes(b"".join([first, *lines(folder)[1:]]))
    (folder / "index.db").unlink()
    async with place_of(folder).storage() as storage:
        for _ in range(2):
            with pytest.raises(NewerFormat, match=r"thread t'? has format 99.*upgrade perdure"):
                await ledger(Stage(), storage).run("x", thread_id="t")
    await assert_threads_continue(place_of(folder), "other", "half")


Damage = Callable[[bytes], bytes]
INDEXES: dict[str, Damage] = {
    "gone": lambda data: b"",
    "no database": lambda data: b"no database" * 1000,
    "cut off": lambda data: data[: len(data) // 2],
    "zeros in the middle": lambda data: data[:4096] + b"\0" * 4096 + data[8192:],
    "zeros at the end": lambda data: data[:-4096] + b"\0" * 4096,
    "zeros at the start": lambda data: b"\0" * 4096 + data[4096:],
}


@pytest.mark.parametrize("damage", INDEXES.values(), ids=INDEXES)
async def test_index_is_rebuilt_from_the_files(folder: Path, damage: Damage) -> None:
    index = folder / "index.db"
    index.write_bytes(damage(index.read_bytes()))
    await assert_threads_continue(place_of(folder), "t", "other", "half")
    async with place_of(folder).storage() as storage:
        assert len(await storage.list_checkpoint_infos(thread_id="t")) == 2 * len(WRITTEN) + 2
