"""verify finds what was damaged in the folder of a file store, in its files and in its index, and names the thread."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.promises.harm import IN_ROWS, Harm, damages, make_whole, named
from tests.promises.processes import Place


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_whole("file", tmp_path_factory.mktemp("whole"))


Lines = list[bytes]


def lines(thread_id: str, change: Callable[[Lines], object]) -> Harm:
    """Change the lines of a thread's file."""

    def harm(folder: Path) -> None:
        path = folder / "threads" / f"{thread_id}.jsonl"
        file_lines = path.read_bytes().splitlines(keepends=True)
        change(file_lines)
        path.write_bytes(b"".join(file_lines))

    return harm


def flipped(place: int) -> Callable[[Lines], object]:
    def change(file_lines: Lines) -> None:
        data = bytearray(file_lines[place])
        data[len(data) // 2] ^= 1
        file_lines[place] = bytes(data)

    return change


def swapped(file_lines: Lines) -> None:
    file_lines[3], file_lines[4] = file_lines[4], file_lines[3]


def of_kind(kind: bytes, change: Callable[[Lines, int], object]) -> Callable[[Lines], object]:
    """The last line of that kind."""

    def find(file_lines: Lines) -> None:
        change(file_lines, max(place for place, line in enumerate(file_lines) if b'"line":"%b"' % kind in line))

    return find


def remove(file_lines: Lines, place: int) -> None:
    del file_lines[place]


def flip(file_lines: Lines, place: int) -> None:
    flipped(place)(file_lines)


def path_of(thread_id: str, harm: Harm) -> Harm:
    return lambda folder: harm(folder / "threads" / f"{thread_id}.jsonl")


IN_LINES: dict[str, tuple[str, Harm]] = {
    "a flipped bit in the first line": ("branched", lines("branched", flipped(0))),
    "a flipped bit in a commit": ("branched", lines("branched", flipped(5))),
    "a flipped bit in the last line": ("branched", lines("branched", flipped(-1))),
    "the first line is gone": ("branched", lines("branched", lambda file_lines: file_lines.pop(0))),
    "a commit is gone": ("branched", lines("branched", lambda file_lines: file_lines.pop(4))),
    "the last line is gone": ("branched", lines("branched", lambda file_lines: file_lines.pop())),
    "swapped lines": ("branched", lines("branched", swapped)),
    "a line is there twice": ("branched", lines("branched", lambda file_lines: file_lines.insert(3, file_lines[3]))),
    "a commit is there again at the end": (
        "branched",
        lines("branched", lambda file_lines: file_lines.append(file_lines[3])),
    ),
    "the file is gone": ("branched", path_of("branched", Path.unlink)),
    "the file is empty": ("branched", path_of("branched", lambda path: path.write_bytes(b""))),
    "the file of another thread": (
        "branched",
        path_of("branched", lambda path: shutil.copy(path.with_name("asking.jsonl"), path)),
    ),
    "a flipped bit in the journal": ("half", lines("half", of_kind(b"journal", flip))),
    "the last line break is changed": (
        "posted",
        lines("posted", lambda file_lines: file_lines.append(file_lines.pop()[:-1] + b"*")),
    ),
    "a line of the journal is gone": ("half", lines("half", of_kind(b"journal", remove))),
    "a flipped bit in the inbox": ("posted", lines("posted", of_kind(b"post", flip))),
    "an item of the inbox is gone": ("posted", lines("posted", of_kind(b"post", remove))),
    "a pin is gone": ("branched", lines("branched", of_kind(b"pin", remove))),
}


@pytest.mark.parametrize(("thread_id", "harm"), IN_LINES.values(), ids=IN_LINES)
async def test_a_changed_file_is_found(thread_id: str, harm: Harm, whole: Path, tmp_path: Path) -> None:
    problems = await damages("file", whole, tmp_path, harm)
    assert thread_id in named(problems)
    assert named(problems) <= {thread_id, None}, "the others are whole"


@pytest.mark.parametrize(("thread_id", "harm"), IN_ROWS.values(), ids=IN_ROWS)
async def test_index_that_differs_from_the_files_is_found(
    thread_id: str | None, harm: Harm, whole: Path, tmp_path: Path
) -> None:
    problems = await damages("file", whole, tmp_path, harm)
    assert problems and (thread_id is None or thread_id in named(problems))


ENDS = ("first line", "last line is", "last line break", "file is", "journal is", "inbox is", "pin is")
STILL_KNOWN = {
    name: case for name, case in IN_LINES.items() if "flipped" in name or not any(end in name for end in ENDS)
}
"""Without those of which nothing but the index knows that there was more."""


@pytest.mark.parametrize(("thread_id", "harm"), STILL_KNOWN.values(), ids=STILL_KNOWN)
async def test_a_changed_file_is_found_without_the_index(
    thread_id: str, harm: Harm, whole: Path, tmp_path: Path
) -> None:
    def without_index(folder: Path) -> None:
        harm(folder)
        (folder / "threads" / "index.db").unlink()

    problems = await damages("file", whole, tmp_path, without_index)
    assert any(thread_id in (damage.thread_id, *damage.reason.replace("'", ".").split(".")) for damage in problems)


async def test_foreign_file_is_reported_and_harms_no_thread(whole: Path, tmp_path: Path) -> None:
    def harm(folder: Path) -> None:
        (folder / "threads" / "notes.jsonl").write_text('{"level": "info"}\n')

    problems = await damages("file", whole, tmp_path, harm)
    assert [("notes.jsonl" in damage.reason, damage.thread_id) for damage in problems] == [(True, None)]
    async with Place("file", tmp_path / "harmed").storage() as storage:
        assert len(await storage.list_threads()) == 10
