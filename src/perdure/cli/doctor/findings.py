"""What `perdure doctor` found, judged: a mark, a sentence, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perdure.cli.output.amounts import format_count, format_size
from perdure.stores.health import StoreContents

LITTLE_DISK = 1024**3
HARDLY_ANY_DISK = 16 * 1024**2


@dataclass(frozen=True)
class Finding:
    mark: Literal["ok", "warn", "fail"]
    check: str
    found: str
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
        remedy = "`perdure threads` shows where they stand, `perdure resume APP THREAD` goes on"
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
