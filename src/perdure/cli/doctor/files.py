"""SQLite and file stores, judged."""

from __future__ import annotations

from perdure.cli.doctor.findings import Finding, contents_found, disk_found, version_found
from perdure.cli.output.amounts import format_count, format_size
from perdure.stores.file.health import FileReport
from perdure.stores.sqlite.health import SqliteReport

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
