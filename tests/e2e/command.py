"""The command `perdure` as a process: with pipes, with a terminal, or left running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("perdure")
STORE = "sqlite:///threads.db"
needs_pseudo_terminals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def environment(**more: str) -> dict[str, str]:
    """The caller's environment without the variables that change how the command behaves."""
    unwanted = ("PERDURE", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM")
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)} | more


def perdure(
    *arguments: str, folder: Path | None = None, store: str | None = STORE, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, without a terminal."""
    named = {} if store is None else {"PERDURE_STORE": store}
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=folder,
        env=environment(**named, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )


@contextmanager
def running(*arguments: str, folder: Path, until: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """The running command. The block begins after the command prints a line with this text, and kills it at the end."""
    with subprocess.Popen(
        [COMMAND, *arguments],
        cwd=folder,
        env=environment(**{"PERDURE_STORE": STORE, **more}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert any(until in line for line in process.stdout), "it ended before"
            yield process
        finally:
            process.kill()


def in_terminal(*arguments: str, folder: Path, columns: int = 80, typed: str = "", **more: str) -> tuple[str, int]:
    """The text of a terminal of this width, without colours, and the exit code. `typed` is the waiting input."""
    import termios  # not on Windows

    screen, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    os.write(screen, typed.encode())
    named = {"PERDURE_STORE": STORE, "TERM": "xterm", **more}
    process = subprocess.Popen(
        [COMMAND, *arguments], cwd=folder, env=environment(**named), stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    shown = b""
    try:
        while part := read_or_end(screen):
            shown += part
        return COLOURS.sub("", shown.decode()).replace("\r\n", "\n"), process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def read_or_end(screen: int) -> bytes:
    try:
        return os.read(screen, 65_536)
    except OSError:  # the other end of the pseudo-terminal is closed
        return b""
