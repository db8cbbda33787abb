"""Server-sent events, read from bytes that are split anywhere."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from perdure.client.event_stream import Frames, SseFrame

NAMES = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
LINES = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1, max_size=4)
FRAMES = st.lists(
    st.builds(
        lambda event, lines, its_id: SseFrame(event, "\n".join(lines), its_id),
        NAMES.map(lambda name: f"e{name}"),
        LINES,
        st.none() | st.integers(0, 10**9).map(str),
    ),
    max_size=6,
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def written(frame: SseFrame, end: str, *, comments: bool) -> str:
    lines = [f"event: {frame.event}", *(f"data: {line_of_data}" for line_of_data in frame.data.split("\n"))]
    if frame.id is not None:
        lines.insert(0, f"id: {frame.id}")
    if comments:
        lines.insert(1, ": still there")
    return "".join(f"{line}{end}" for line in (*lines, ""))


def fed(pieces: list[bytes]) -> list[SseFrame]:
    frames = Frames()
    return [frame for piece in pieces for frame in frames.feed(piece)]


def cut(content: bytes, places: list[int]) -> list[bytes]:
    cuts = [0, *sorted(place % (len(content) + 1) for place in places), len(content)]
    return [content[start:end] for start, end in pairwise(cuts)]


@given(FRAMES, st.lists(st.integers(0, 10_000), max_size=12), ENDS, st.booleans(), st.booleans())
def test_frames_are_the_same_however_their_bytes_are_split(
    frames: list[SseFrame], places: list[int], end: str, comments: bool, has_mark: bool
) -> None:
    text = "".join(written(frame, end, comments=comments) for frame in frames)
    sent = (b"\xef\xbb\xbf" if has_mark else b"") + text.encode()
    assert fed([sent]) == frames
    assert fed(cut(sent, places)) == frames
    assert fed([bytes([byte]) for byte in sent]) == frames


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_arbitrary_bytes_are_read_alike_in_pieces_and_at_once(pieces: list[bytes]) -> None:
    def outcome(parts: list[bytes]) -> list[SseFrame] | str:
        try:
            return fed(parts)
        except UnicodeDecodeError:
            return "no UTF-8"

    assert outcome(pieces) == outcome([b"".join(pieces)])


def test_incomplete_frame_is_not_returned() -> None:
    assert fed([b"data: whole\n\ndata: ha"]) == [SseFrame("message", "whole")]


def test_fields_are_read_as_the_standard_defines() -> None:
    frames = Frames()
    content = b"retry: 1500\nretry: x\nunknown: 1\ndata\ndata:  two\nid: 7\nid: a\0b\n\nevent: empty\n\n: beat\n\n"
    assert frames.feed(content) == [SseFrame("message", "\n two", "7")]
    assert frames.retry_seconds == 1.5
    assert frames.comments == 1


def test_large_frame_in_many_pieces_is_read_whole() -> None:
    body = json.dumps({"text": "x" * 4_000_000}).encode()
    sent = b"data: " + body + b"\n\n"
    pieces = [sent[at : at + 1000] for at in range(0, len(sent), 1000)]
    assert fed(pieces) == [SseFrame("message", body.decode())]


def test_frame_over_the_size_limit_raises_value_error() -> None:
    frames = Frames(largest=1000)
    frames.feed(b"data: " + b"x" * 900 + b"\n\n" + b"data: " + b"y" * 900)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        frames.feed(b"y" * 200)
