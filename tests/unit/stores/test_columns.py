"""Values as compact columns come back exactly, whatever they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import example, given, strategies as st

from perdure.checkpoints.checkpoint import WorkflowCheckpoint, utc_now
from perdure.names import new_run_id
from perdure.stores.packing import RUN, from_id, from_time, from_timestamp, to_id, to_time, to_timestamp

OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
DAYS = timedelta(days=2)
TIMES = st.datetimes(timezones=st.one_of(st.just(UTC), OFFSETS)) | st.datetimes()
SPELLINGS = st.builds(lambda time, separator, places: time.isoformat(separator, places), TIMES, st.sampled_from("T t"),
    st.sampled_from(("auto", "hours", "minutes", "seconds", "milliseconds", "microseconds")))  # fmt: skip


@given(SPELLINGS)
@example("2024-01-01T00:00:00.000000+00:00")
@example("2024-01-01T00:00:00,123456+00:00")
@example("2024-W01-1T00:00:00.123456+00:00")
@example("2024-01-01T00:00:00Z")
@example("2024-01-01T00:00:00.123456Z     ")
@example("0001-01-01T00:00:00+14:00")
@example("9999-12-31T23:59:59.999999-14:00")
@example("20240101T000000+0000")
@example("2024-01-01")
def test_a_timestamp_comes_back_to_the_letter(text: str) -> None:
    assert to_timestamp(from_timestamp(text)) == text


@given(st.text())
@example("")
@example("17")
def test_text_that_is_not_a_timestamp_stays_text(text: str) -> None:
    assert to_timestamp(from_timestamp(text)) == text
    assert isinstance(from_timestamp(text), str) or text[:2].isdigit()


def test_timestamps_of_this_library_are_stored_as_numbers() -> None:
    for text in (utc_now(), "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.123456+00:00"):
        assert isinstance(from_timestamp(text), int)
    assert to_timestamp(None) == ""


@given(st.datetimes(datetime.min + DAYS, datetime.max - DAYS, timezones=OFFSETS))
def test_a_time_comes_back_as_the_same_instant(time: datetime) -> None:
    again = to_time(from_time(time))
    assert again == time
    assert again.tzinfo is UTC


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_numbers_of_times_sort_like_the_times(first: datetime, other: datetime) -> None:
    assert (from_time(first) < from_time(other)) == (first < other)


IDS = st.one_of(
    st.text(),
    st.text("0123456789abcdef"),
    st.text("0123456789abcdefABCDEF -"),
    st.binary().map(bytes.hex),
    st.binary().map(lambda data: RUN + data.hex()),
    st.builds("{}{}".format, st.sampled_from(("run-", "RUN-", "run", "-")), st.text("0123456789abcdef", max_size=6)),
)


@given(st.none() | IDS, st.sampled_from(("", RUN)))
@example("run-", RUN)
@example("", "")
@example("ab cd", "")
@example("AB", "")
@example("abc", "")
@example("٠١", "")
def test_an_id_comes_back_to_the_letter(text: str | None, prefix: str) -> None:
    assert to_id(from_id(text, prefix), prefix) == text


@given(IDS, IDS, st.sampled_from(("", RUN)))
def test_two_ids_never_share_a_column(first: str, other: str, prefix: str) -> None:
    assert (from_id(first, prefix) == from_id(other, prefix)) == (first == other)


def test_ids_that_are_made_here_take_half_their_length() -> None:
    for text, prefix in ((WorkflowCheckpoint("w", "hash").checkpoint_id, ""), (new_run_id(), RUN)):
        column = from_id(text, prefix)
        assert isinstance(column, bytes)
        assert len(column) * 2 <= len(text)
