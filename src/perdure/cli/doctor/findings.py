"""SQLite and file stores, judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perdure.cli.output.tables import format_count, format_size
from perdure.stores.file.health import FileReport
from perdure.stores.health import StoreContents
from perdure.stores.sqlite.health import SqliteReport

# ---------------------------------------------------------------- findings


LITTLE_DISK = 1024**3
HARDLY_ANY_DISK = 16 * 1024**2


@dataclass(frozen=True)
class Finding:
    mark: Literal["ok", "warn", "fail"]
    check: str
    text: str
    remedy: str = ""


def contents_found(contents: StoreContents) -> list[Finding]:
    about = "about " if contents.is_estimated else ""
    text = f"{format_count(contents.threads, 'thread')}, {about}{format_count(contents.checkpoints, 'checkpoint')}"
    if contents.owned:
        text += f"; {contents.owned} running"
    if contents.inbox:
        text += f"; {format_count(contents.inbox, 'message')} not taken in yet"
    findings = [Finding("ok", "threads", text)]
    if contents.left_behind:
        whose = f"left by processes that are gone: {format_count(contents.left_behind, 'thread')}"
        remedy = "`perdure threads` shows where they stand, `perdure resume APP THREAD` resumes one"
        findings.append(Finding("warn", "owners", whose, remedy))
    if contents.overdue:
        late = f"{format_count(contents.overdue, 'thread')} should have gone on more than a minute ago"
        remedy = "Sleeps, retries and deadlines need a run: `perdure resume APP THREAD`"
        findings.append(Finding("warn", "due", late, remedy))
    asked = f"{contents.requests} pending"
    if contents.late_requests:
        asked += f", {contents.late_requests} of them past the deadline"
    findings.append(Finding("ok", "requests", asked))
    if contents.is_encrypted:
        findings.append(Finding("ok", "encryption", "on: commands need its keys, in PERDURE_KEYS"))
    return findings


def disk_found(free: int, used: int) -> Finding:
    text = f"{format_size(free)} free"
    if free < HARDLY_ANY_DISK:
        return Finding(
            "fail", "disk", text, "Nothing more can be committed when it is full: free some, or move the store"
        )
    if free < max(LITTLE_DISK, used):
        return Finding("warn", "disk", text, "Free some before commits fail; `perdure prune` removes old checkpoints")
    return Finding("ok", "disk", text)


def version_found(version: int, known: int, *, may_upgrade: bool = True) -> Finding:
    """Of the format that a store is written in."""
    if version > known:
        remedy = "Upgrade perdure here; nothing is changed by an older one"
        return Finding("fail", "format", f"version {version}; this perdure knows up to {known}", remedy)
    if version < known and not may_upgrade:
        remedy = "Let the owner of the tables use the store once, with this version of perdure"
        return Finding(
            "fail", "format", f"version {version}, to be changed to {known}, which this user may not", remedy
        )
    if version < known:
        return Finding("ok", "format", f"version {version}; the next use changes it to {known}")
    return Finding("ok", "format", f"version {version}")


VERIFY = "`perdure verify` reads all of it, every digest and every link"
BACKUP = "Restore it from a backup, or move it away to begin with an empty one"
STOPPED = "another process has held the lock all the time"
FIND_THE_STOPPED = "Is one stopped, or does one hang? No other process can write until it continues or ends"


def sqlite_found(report: SqliteReport) -> list[Finding]:
    findings = [_file(report)]
    if report.damage:
        findings.append(Finding("fail", "database", f"it cannot be read: {report.damage}", BACKUP))
    elif report.foreign:
        findings.append(Finding("fail", "database", "it is a database of something else", "Name another file"))
    elif not report.version:
        findings.append(Finding("warn", "format", "nothing was written to it yet: the next use does"))
    else:
        findings.append(version_found(report.version, report.known_version))
    if not report.is_writable:
        remedy = "Every run needs both: give this user the right"
        findings.append(Finding("fail", "rights", "the file, or the folder it is in, may not be written", remedy))
    findings.append(disk_found(report.free_disk_bytes, report.file_bytes))
    if report.contents is not None:
        findings += [_journal(report), _lock(report.is_locked), *contents_found(report.contents)]
        findings.append(Finding("ok", "integrity", f"not looked at: {VERIFY}"))
    return findings


def _file(report: SqliteReport) -> Finding:
    text = f"{report.path}, {format_size(report.file_bytes)}"
    if report.free_pages:
        text += f", {format_size(report.free_pages * report.page_bytes)} of it free for what comes next"
    if report.log_bytes:
        text += f", and {format_size(report.log_bytes)} in its log"
    return Finding("ok", "file", text)


def _journal(report: SqliteReport) -> Finding:
    if report.journal_mode == "wal":
        return Finding("ok", "journal", "wal: readers never wait")
    return Finding("ok", "journal", f"{report.journal_mode}: the next use sets it to wal")


def _lock(is_locked: bool) -> Finding:
    if is_locked:
        return Finding("warn", "lock", STOPPED, FIND_THE_STOPPED)
    return Finding("ok", "lock", "free")


def files_found(report: FileReport) -> list[Finding]:
    findings = [
        Finding(
            "ok", "folder", f"{report.path}, {format_count(report.files, 'thread')}, {format_size(report.file_bytes)}"
        )
    ]
    findings.append(_format(report))
    if report.unreadable:
        remedy = f"Restore them from a backup, or move them away; {VERIFY}"
        text = f"{_some(report.unreadable)}: the first line names no thread"
        findings.append(Finding("fail", "files", text, remedy))
    if report.shortened:
        text = f"{_some(report.shortened)}: the file is shorter than what was acknowledged"
        remedy = f"Commits were lost: restore the files from a backup; {VERIFY}"
        findings.append(Finding("fail", "files", text, remedy))
    if not report.is_writable:
        findings.append(Finding("fail", "rights", "the folder may not be written", "Give this user the right"))
    findings.append(disk_found(report.free_disk_bytes, report.file_bytes))
    findings += [_index(report), _lock(report.is_locked or (report.index is not None and report.index.is_locked))]
    if report.index is not None and report.index.contents is not None:
        findings += contents_found(report.index.contents)
    findings.append(Finding("ok", "integrity", f"not looked at: {VERIFY}"))
    return findings


def _format(report: FileReport) -> Finding:
    if report.newer:
        text = f"{_some(report.newer)}: of a newer perdure; this one knows up to version {report.known_version}"
        return Finding("fail", "format", text, "Upgrade perdure here; nothing is changed by an older one")
    return Finding("ok", "format", f"version {report.known_version}")


def _index(report: FileReport) -> Finding:
    if report.index is None:
        return Finding("ok", "index", "none: the next use makes it from the files")
    if report.index.damage or report.index.foreign:
        return Finding("warn", "index", "damaged: the next use rebuilds it from the files")
    if not report.is_index_current:
        return Finding("ok", "index", "of an earlier start of the machine: the next use rebuilds it from the files")
    return Finding("ok", "index", format_size(report.index.file_bytes + report.index.log_bytes))


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
