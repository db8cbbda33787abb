"""What can be the id of a user: it names their threads, and is shown in logs."""

from __future__ import annotations

from typing import TypeGuard

LONGEST = 255


def is_user_id(value: object) -> TypeGuard[str]:
    """Text of 1 to 255 characters that can be written as UTF-8, without control characters."""
    return isinstance(value, str) and len(value) <= LONGEST and bool(value.strip()) and all(map(_is_plain, value))


def _is_plain(character: str) -> bool:
    code = ord(character)
    return code >= 0x20 and not 0x7F <= code <= 0x9F and not 0xD800 <= code <= 0xDFFF
