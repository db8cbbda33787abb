"""The file of an exported thread: it reads back equal, and the reader detects every change to it."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from perdure.checkpoints.transfer.dump import DumpReader, DumpWriter
from perdure.errors import NewerFormat, NoThreadFile
from perdure.names import digest_of
from perdure.records import (
    CheckpointInfo,
    Commit,
    InboxItem,
    JournalEntry,
    Lease,
    LoggedEvents,
    PendingRequest,
    ThreadHeader,
)
from perdure.store import rename_commit, rename_header

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
PLAIN = st.none() | st.integers(-9, 9) | TEXTS
BODIES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=5
)
JSON = BODIES.map(lambda tree: json.dumps(tree).encode())
TIMES = st.datetimes(timezones=st.just(UTC))


def a_commit(thread_id: str, number: int, **parts: Any) -> Commit:
    return Commit(Lease(thread_id, "", 0), number, timestamp=AT.isoformat(), status="IDLE", run_id="run-1", **parts)


@st.composite
def threads(draw: st.DrawFn) -> tuple[ThreadHeader, list[Commit]]:
    thread_id = draw(IDS)
    commits = []
    first_seq = seq = draw(st.integers(1, 5))
    numbers = sorted(draw(st.sets(st.integers(1, 20), max_size=3)))
    pins = [number for number in numbers if draw(st.booleans())]
    for number in numbers:
        run_id, status, timestamp = draw(TEXTS), draw(TEXTS), draw(TEXTS)
        info, events = None, None
        if number in pins or draw(st.booleans()):
            of_info = draw(st.tuples(TEXTS, IDS | st.none(), TEXTS) | st.just((timestamp, run_id or None, status)))
            previous = draw(IDS | st.none())
            info = CheckpointInfo(f"c{number}", thread_id, draw(TEXTS), number, 3, previous, *of_info, number in pins)
        if draw(st.booleans()):
            count = draw(st.integers(1, 3))
            own = sorted(draw(st.sets(TEXTS, max_size=2))) or ()
            of_commit = (number, run_id, timestamp, info)
            events = LoggedEvents(seq, count, draw(JSON), draw(st.booleans()), own, *of_commit)
            seq += count
        commits.append(
            Commit(
                Lease(thread_id, "", 0),
                number,
                info,
                None if info is None else draw(JSON.filter(lambda body: body != b"null")),
                events,
                status=status,
                run_id=run_id,
                timestamp=timestamp,
                parent=draw(st.none() | st.integers(1, 20)),
                chunks=draw(st.dictionaries(TEXTS, JSON, max_size=3)),
                dropped=sorted(draw(st.sets(TEXTS, max_size=3))) or (),
                carried=sorted(draw(st.sets(TEXTS, max_size=3))) or (),
            )
        )
    requests = {draw(IDS): (draw(IDS), draw(TIMES), draw(TIMES | st.none()), draw(TEXTS | st.none())) for _ in "ab"}
    standing = ThreadHeader(
        thread_id,
        draw(TEXTS),
        draw(st.integers(0, 2**53)),
        draw(st.integers(0, 9)),
        draw(TEXTS),
        draw(TEXTS),
        seq - 1,
        first_seq,
        draw(st.none() | st.integers(1, 20)),
        draw(TIMES | st.none()),
        [PendingRequest(thread_id, key, *rest) for key, rest in sorted(requests.items())],
        [
            JournalEntry(draw(st.integers(0, 9)), draw(st.integers(0, 9)), body)
            for body in draw(st.lists(JSON, max_size=2))
        ],
        [InboxItem(draw(IDS), draw(TEXTS), body) for body in draw(st.lists(JSON, max_size=2))],
        sorted(draw(st.sets(IDS, max_size=2))),
        pins,
    )
    return standing, commits


def written(standing: ThreadHeader, commits: list[Commit]) -> bytes:
    file = io.BytesIO()
    writer = DumpWriter(file, standing)
    for commit in commits:
        writer.add(commit)
    writer.end()
    assert writer.size == len(file.getvalue())
    return file.getvalue()


def read(data: bytes) -> tuple[ThreadHeader, list[Commit]]:
    reader = DumpReader(io.BytesIO(data), "t.jsonl")
    return reader.header, list(reader.commits())


THREAD = (
    ThreadHeader(
        "t",
        "w",
        3,
        7,
        "IDLE",
        AT.isoformat(),
        2,
        head=2,
        due_at=AT + timedelta(days=1),
        requests=[PendingRequest("t", "r", "reviewer", AT, AT, "Ada")],
        journal=[JournalEntry(3, 5, b'{"done":1}')],
        inbox=[InboxItem("i", "message", b'"hi"')],
        consumed=["h"],
        pins=[2],
    ),
    [
        a_commit("t", 1, chunks={digest_of(b'"x"'): b'"x"'}),
        a_commit(
            "t",
            2,
            info=CheckpointInfo("c2", "t", "w", 2, 1, "c0", AT.isoformat(), "run-1", "IDLE", is_pinned=True),
            root=b'{"state":{"$ref":"x.1"}}',
            events=LoggedEvents(1, 1, b'[["is","IDLE"]]', False, (), 2, "run-1", AT.isoformat(), None),
        ),
        a_commit("t", 3, events=LoggedEvents(2, 1, b"[[1]]", False, (), 3, "run-1", AT.isoformat(), None)),
    ],
)
WHOLE = written(*THREAD)
LINES = WHOLE.splitlines(keepends=True)


# ---------------------------------------------------------------- what is whole


@given(threads())
def test_written_thread_reads_back_equal(thread: tuple[ThreadHeader, list[Commit]]) -> None:
    assert read(written(*thread)) == thread


def test_file_is_lines_of_plain_json_with_a_verifiable_digest() -> None:
    first, *commits, last = [json.loads(line) for line in LINES]
    assert (first["line"], first["version"], first["thread_id"]) == ("perdure thread", 1, "t")
    assert [commit["line"] for commit in commits] == ["commit"] * 3
    assert commits[1]["root"] == {"state": {"$ref": "x.1"}}
    assert last == {"sum": last["sum"], "line": "end", "commits": 3, "sha256": sha256(b"".join(LINES[:-1])).hexdigest()}


def test_pruned_events_and_checkpoints_are_not_written() -> None:
    standing, commits = THREAD
    forgetful = msgspec.structs.replace(standing, first_seq=2, head=None, pins=[])
    gone = msgspec.structs.replace(commits[1], info=None)
    events = LoggedEvents(1, 1, b'[["secret"]]', False, [digest_of(b'"x"')])
    first = msgspec.structs.replace(commits[0], events=events)
    data = written(forgetful, [first, gone, commits[2]])
    assert b"secret" not in data and b'"x"' not in data and b'"root"' not in data
    assert [commit.number for commit in read(data)[1]] == [1, 2, 3]


def test_chunk_with_line_breaks_is_not_written() -> None:
    with pytest.raises(ValueError, match="line breaks"):
        written(THREAD[0], [a_commit("t", 1, chunks={"d": b"[1,\n2]"})])


def test_renamed_thread_gets_new_checkpoint_ids_in_the_same_order() -> None:
    infos = [CheckpointInfo(f"c{n}", "t", "w", n, n, before, "") for n, before in ((1, "far"), (2, "c1"), (3, "c2"))]
    commits = [a_commit("t", info.number, info=info, root=b"{}") for info in infos]
    new: dict[str, str] = {}
    first, second, third = (rename_commit(commit, "u", new) for commit in commits)
    assert first.info and second.info and third.info
    ids = [commit.info.checkpoint_id for commit in (first, second, third) if commit.info]
    assert not {*ids} & {"c1", "c2", "c3"} and len({*ids}) == 3
    previous = [commit.info.previous_checkpoint_id for commit in (first, second, third) if commit.info]
    assert previous == ["far", *ids[:2]], "that of another thread is left"
    assert {commit.lease.thread_id for commit in (first, second, third)} == {"u"} == {second.info.thread_id}
    standing = rename_header(THREAD[0], "u")
    assert (standing.thread_id, [request.thread_id for request in standing.requests]) == ("u", ["u"])


# ---------------------------------------------------------------- what is not


def assert_rejected(data: bytes, reason: str = ".") -> None:
    with pytest.raises(NoThreadFile, match=reason) as raised:
        read(data)
    assert "'t.jsonl' cannot be imported" in str(raised.value)
    assert "Nothing was imported" in str(raised.value)


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    for place in range(len(WHOLE)):
        for bit in (1, 32):
            assert_rejected(WHOLE[:place] + bytes([WHOLE[place] ^ bit]) + WHOLE[place + 1 :])


def test_a_file_that_was_cut_off_anywhere_is_noticed() -> None:
    for size in range(len(WHOLE)):
        assert_rejected(WHOLE[:size])


@given(st.data())
def test_a_byte_that_was_added_lost_or_changed_is_noticed(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(WHOLE)), "place")
    lost = data.draw(st.integers(0, 300), "lost")
    added = data.draw(st.binary(max_size=20), "added")
    changed = WHOLE[:place] + added + WHOLE[place + lost :]
    if changed != WHOLE:
        assert_rejected(changed)


@given(st.lists(st.sampled_from(range(len(LINES))), max_size=8))
def test_lines_in_another_order_repeated_or_missing_are_noticed(order: list[int]) -> None:
    if order != [*range(len(LINES))]:
        assert_rejected(b"".join([LINES[place] for place in order]))


def test_error_names_the_damaged_line() -> None:
    assert_rejected(LINES[0] + LINES[1].replace(b'"commit"', b'"commot"') + b"".join(LINES[2:]), "line 2 is damaged")
    assert_rejected(
        b"".join([LINES[0], LINES[2], LINES[1], *LINES[3:]]), "line 2 is damaged: .* belongs to another line"
    )
    assert_rejected(b"".join(LINES[:-1]), "it was cut off after line 4")
    assert_rejected(WHOLE + b"\n", "something follows line 5, which is its last")
    assert_rejected(WHOLE.replace(b"\n", b"\r\n"), "line 1 is damaged")


def test_a_line_of_the_same_thread_at_another_time_is_noticed() -> None:
    standing, commits = THREAD
    later = written(standing, [commits[0], msgspec.structs.replace(commits[1], root=b"{}"), commits[2]])
    mixed = b"".join([*LINES[:2], later.splitlines(keepends=True)[2], *LINES[3:]])
    assert_rejected(mixed, "line 5 is damaged: the lines before it do not match its digest")


def test_a_line_of_another_thread_is_noticed() -> None:
    standing, commits = THREAD
    other = written(rename_header(standing, "u"), commits).splitlines(keepends=True)
    assert_rejected(b"".join([*LINES[:1], other[1], *LINES[2:]]), "line 2 is damaged")


@pytest.mark.parametrize(
    "data",
    [
        b"{}\n",
        b"[]\n",
        b"\0" * 100,
        b"SQLite format 3\0",
        '{"sum":"ähm'.encode("latin-1"),
        b'{"sum":"x"}\n',
        b'{"sum":"',
    ],
)
def test_file_of_another_kind_is_rejected(data: bytes) -> None:
    assert_rejected(data, "it is not a file that export_thread wrote|line 1 is damaged")


@pytest.mark.parametrize("wrong", [{"thread_id": ""}, {"number": -1}, {"fence": 2**60}, {"last_seq": -1}, {"head": -3}])
def test_intact_file_of_an_impossible_thread_is_rejected(wrong: dict[str, Any]) -> None:
    assert_rejected(written(msgspec.structs.replace(THREAD[0], **wrong), []), "line 1 is damaged: it was changed")


def test_empty_file_is_rejected_as_empty() -> None:
    assert_rejected(b"", "it is empty")


def test_file_of_a_newer_perdure_is_rejected_as_newer_format() -> None:
    from perdure.checkpoints.transfer import dump

    first = b'{"line":"perdure thread","version":2,"thread_id":"t","something":"new"}'
    line = b'{"sum":"%b",%b\n' % (dump._checksum("t", 0, first), first[1:])
    with pytest.raises(NewerFormat, match=r"'t\.jsonl' has format 2; this perdure reads up to 1"):
        read(line + b"whatever follows")
