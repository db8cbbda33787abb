"""Values as compact columns, and back exactly: ids of hexadecimal digits as bytes, times as microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
RUN = "run-"


def from_time(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def to_time(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND


def from_timestamp(text: str) -> int | str:
    """As a number where the text can be made from it again, to the letter."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            return text
        number = from_time(time)
        # As `datetime.isoformat` writes it: then it need not be tried.
        is_usual = len(text) == 32 and text[26:] == "+00:00" and text[4] + text[7] + text[10] + text[19] == "--T."
        return number if (is_usual and number % 1_000_000) or to_time(number).isoformat() == text else text
    except (ValueError, OverflowError):
        return text


def to_timestamp(column: int | str | None) -> str:
    if not isinstance(column, int):
        return column or ""
    seconds, microseconds = divmod(column, 1_000_000)
    return f"{_second(seconds)}.{str(microseconds).zfill(6)}+00:00" if microseconds else f"{_second(seconds)}+00:00"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    """Lists are of commits that follow each other: many in one second."""
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def from_id(text: str | None, prefix: str = "") -> bytes | str | None:
    if text is None or not text.startswith(prefix):
        return text
    digits = text[len(prefix) :]
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        return text
    return data if data and data.hex() == digits else text


def to_id(column: bytes | str | None, prefix: str = "") -> str | None:
    return prefix + column.hex() if isinstance(column, bytes) else column
