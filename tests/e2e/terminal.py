"""A real pseudo-terminal around the command `perdure` in this process, which is quicker than a new process."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import pytest
from tests.e2e.command import COLOURS, read_or_end

from perdure.cli.main import main

PIECES = re.compile(r"\x1b\[\??(?P<code>[0-9;]*[A-Za-z])|(?P<move>[\r\n])|(?P<text>[^\x1b\r\n]+)")
QUESTION = re.compile(r"\[y/N\]: $")


class Shown(NamedTuple):
    returncode: int
    text: str
    """The final text of the screen, without colours."""
    raw: str

    @property
    def width(self) -> int:
        return max(map(len, self.text.splitlines()), default=0)


Screen: TypeAlias = Callable[..., Shown]


class Terminal:
    """Both ends of a pseudo-terminal. It types the answer to each `[y/N]`."""

    def __init__(self, columns: int, answer: str) -> None:
        import termios  # not on Windows

        self._screen, terminal = os.openpty()
        termios.tcsetwinsize(terminal, (24, columns))
        self._answer = answer
        self._shown = ""
        self.stream = io.TextIOWrapper(os.fdopen(terminal, "r+b", buffering=0), encoding="utf-8", write_through=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while part := read_or_end(self._screen):
            self._shown += part.decode()
            if QUESTION.search(COLOURS.sub("", self._shown)):
                os.write(self._screen, f"{self._answer}\n".encode())

    def close(self) -> str:
        self.stream.close()
        self._reader.join()
        os.close(self._screen)
        return self._shown.replace("\r\n", "\n")


def in_this_terminal(
    patch: pytest.MonkeyPatch, arguments: list[str], columns: int = 80, answer: str = "y", **variables: str
) -> Shown:
    """Run the command with its three streams at a terminal of this width."""
    terminal = Terminal(columns, answer)
    with patch.context() as patched:
        for name in ("stdin", "stdout", "stderr"):
            patched.setattr(sys, name, terminal.stream)
        patched.setattr(sys, "argv", ["perdure", *arguments])
        for name, value in {"COLUMNS": str(columns), "TERM": "xterm", **variables}.items():
            patched.setenv(name, value)
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            raw = terminal.close()
    code = ended.value.code
    assert isinstance(code, int)
    return Shown(code, remaining(raw), raw)


def remaining(raw: str) -> str:
    """The final text of a terminal. It handles the codes of progress bars: carriage return, cursor up, erase line."""
    lines, row, column = [""], 0, 0
    for piece in PIECES.finditer(raw):
        if piece["text"]:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + piece["text"] + line[column + len(piece["text"]) :]
            column += len(piece["text"])
        elif piece["move"] == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif piece["move"]:
            column = 0
        elif piece["code"].endswith("A"):
            row -= int(piece["code"][:-1] or 1)
        elif piece["code"] == "2K":
            lines[row] = ""
    return "\n".join(line.rstrip() for line in lines)
