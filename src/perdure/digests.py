"""Digests: names of chunks, and checksums of lines."""

from __future__ import annotations

from binascii import b2a_base64
from hashlib import sha256

SHORT = 6
"""Characters of a digest that identify it within its commit, but for one in many millions."""


def digest_of(data: bytes) -> str:
    """128 bits of SHA-256, as 22 characters."""
    return b2a_base64(sha256(data).digest()[:16], newline=False)[:22].decode("ascii")
