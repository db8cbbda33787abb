"""Runs the console blocks of a page again, with ids and times that are the same in every run."""

from __future__ import annotations

import asyncio
import doctest
import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.command import COMMAND, environment
from tests.e2e.terminal import in_this_terminal

from perdure.storages import open_store

COLUMNS = 120
FOLDER = "/srv/office"
BLOCK = re.compile(r"^```console\n(?P<block>.*?)^```$", re.DOTALL | re.MULTILINE)
COMMANDS = re.compile(r"^\$ (?P<command>.*)\n(?P<printed>(?:(?!\$ ).*\n)*)", re.MULTILINE)

ID = re.compile(r"\b(?:run-[0-9a-f]{16}|[0-9a-f]{12}-[0-9a-f]{16}|[0-9a-f]{24})\b")
SOME_ID = re.compile(r"\b(?:run-)?[0-9a-f]{12}[0-9a-f-]*")
TIMES = {
    r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b": "2026-03-02 09:41:07",
    r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00": "2026-03-02T09:41:07.142857+00:00",
    r"\b\d+ s ago": "3 s ago",
    r"\b\d+(?:\.\d)? (?:bytes|[KM]B)\b": "12.0 KB",
    r"\bat byte \d+": "at byte 384",
}


class Step(NamedTuple):
    """One command of a page, as the page shows it."""

    command: str
    printed: str
    start: int
    """The position of its output in the page."""


def steps_of(page: str) -> Iterator[Step]:
    for block in BLOCK.finditer(page):
        for match in COMMANDS.finditer(block["block"]):
            yield Step(match["command"], match["printed"], block.start("block") + match.start("printed"))


class Recorder:
    """A terminal in a folder. It replaces each new id by a fixed id, which later commands of the page may use."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._patch = patch
        self._shown: dict[str, str] = {}
        """The id of the page, by the real id."""
        self._variables = environment(PATH=f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}")

    def run(self, command: str) -> str:
        real_command = SOME_ID.sub(self._real_id, command)
        if command.startswith("export "):
            name, _, value = real_command.removeprefix("export ").partition("=")
            self._variables[name] = value
            return ""
        if command.startswith("perdure ") and not re.search("[|<>]", command):
            variables = {name: value for name, value in self._variables.items() if name.startswith("PERDURE")}
            printed = in_this_terminal(self._patch, shlex.split(real_command)[1:], columns=COLUMNS, **variables).text
        else:
            printed = self._in_a_shell(real_command)
        return self._named(printed)

    def _real_id(self, match: re.Match[str]) -> str:
        """The real id for an id of the page, or for the beginning of one."""
        return next((real for real, shown in self._shown.items() if shown.startswith(match[0])), match[0])

    def _in_a_shell(self, command: str) -> str:
        return subprocess.run(
            command,
            shell=True,
            cwd=self._folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        ).stdout

    def _named(self, printed: str) -> str:
        for pattern, shown in TIMES.items():
            printed = re.sub(pattern, shown, printed)
        new = {*ID.findall(printed)} - self._shown.keys()
        order = {id_: place for place, id_ in enumerate(asyncio.run(self._checkpoints()))} if new else {}
        for real in sorted(new, key=lambda id_: (order.get(id_, -1), id_)):
            self._shown[real] = made_up(real, len(self._shown))
        named = ID.sub(lambda match: self._shown[match[0]], printed.replace(str(self._folder), FOLDER))
        return "".join(f"{line.rstrip()}\n" for line in named.splitlines())

    async def _checkpoints(self) -> list[str]:
        """All checkpoint ids, oldest first. Ids alone do not give the order: several may be of one millisecond."""
        async with open_store(self._variables["PERDURE_STORE"]) as storage:
            return await storage.list_checkpoint_ids()


def made_up(real: str, number: int) -> str:
    """An id of the same form, which depends only on its place among all ids."""
    digits = f"{0x19F5C3E8A00 + 1873 * number:012x}{hashlib.sha256(str(number).encode()).hexdigest()}"
    if real.startswith("run-"):
        return f"run-{digits[12:28]}"
    return f"{digits[:12]}-{digits[12:28]}" if "-" in real else digits[:24]


def is_as_shown(step: Step, printed: str) -> bool:
    """Whether the output matches the page. `...` stands for any text, and the width of columns does not count."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(step.printed, printed, flags)


def replayed(page: str, recorder: Recorder) -> str:
    """The page with the current output of its commands. Output that still matches stays as it is written."""
    pieces, at = [], 0
    for step in steps_of(page):
        printed = recorder.run(step.command)
        if not is_as_shown(step, printed):
            pieces += [page[at : step.start], printed]
            at = step.start + len(step.printed)
    return "".join([*pieces, page[at:]])
