"""Texts that begin with a prefix, as a stretch of all texts in the order of their code points: what an index finds."""

from __future__ import annotations

LAST_CODE = 0x10FFFF
SURROGATES = range(0xD800, 0xE000)
"""Codes that are no characters: no text that is stored has one."""


def is_writable(text: str) -> bool:
    """Whether it can be stored at all. Nothing begins with one that cannot."""
    return not any(ord(one) in SURROGATES for one in text)


def first_after(prefix: str) -> str | None:
    """The first text after all that begin with this one; None if none comes after them."""
    for place in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[place]) + 1
        if code <= LAST_CODE:
            return prefix[:place] + chr(SURROGATES.stop if code in SURROGATES else code)
    return None
