"""The encrypted names of chunks.

A chunk is named by the digest of its content. A reader of the store who guesses the content could compare digests. So
the store gets encrypted names, which the key decrypts. Names of one thread reveal nothing about those of another.

The first characters of a name are permuted by themselves, because references are shortened to them. The rest depends on
the whole name. Each part goes through a Feistel network: each round changes one half by the encrypted other half. All
names of a commit go through it together, as one large number with a block of 16 bytes for each name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache, partialmethod

from perdure.errors import UnsupportedId
from perdure.names import SHORT

Scramble = Callable[[bytes], bytes]
"""Encrypts any number of blocks of 16 bytes, each by itself."""

ROUNDS = 8
REST_ROUNDS = 4
"""Four are enough for halves of 48 bits; the halves of the first characters have 18."""
BLOCK = 16
_PART = 16
"""Characters of a part after the first: its halves fit into half a block."""
_MAX_GROUP = 64
"""Names that are permuted together: the cache holds the constants of that many."""
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_VALUES = bytes(_ALPHABET.find(character) % 256 for character in range(256))
"""The value of each character; 255 for a character that no digest has."""
_CHARACTERS = _ALPHABET + bytes(256 - len(_ALPHABET))
_TWEAK = ((1 << 56) - 1) << 64
"""The bits of a block for the tweak of a part: before its half, after the number of the round."""


class Names:
    """The chunk names of one thread."""

    def __init__(self, scrambler: Callable[[], Scramble]) -> None:
        self._scrambler = scrambler

    def _translate(self, names: Iterable[str], *, decrypts: bool) -> dict[str, str]:
        source = {name: _values(name) for name in names}
        if not source:
            return {}
        scramble = self._scrambler()
        translated = dict.fromkeys(source, b"")
        start, end = 0, SHORT
        while True:
            by_size: defaultdict[int, list[str]] = defaultdict(list)
            for name, values in source.items():
                if len(values) > start:
                    by_size[min(len(values), end) - start].append(name)
            if not by_size:
                return {name: values.translate(_CHARACTERS).decode("ascii") for name, values in translated.items()}
            plain = translated if decrypts else source
            groups = (
                alike[at : at + _MAX_GROUP] for alike in by_size.values() for at in range(0, len(alike), _MAX_GROUP)
            )
            for group in groups:
                before = [plain[name][max(0, start - _PART) : start] for name in group]
                parts = [source[name][start:end] for name in group]
                permuted = _permute(scramble, before, parts, decrypts=decrypts)
                for name, part in zip(group, permuted, strict=True):
                    translated[name] += part
            start, end = end, end + _PART

    encrypt = partialmethod(_translate, decrypts=False)
    """The stored name of each name, or of the first characters of one. Raises UnsupportedId."""
    decrypt = partialmethod(_translate, decrypts=True)
    """The plain name of each stored one. Raises UnsupportedId."""


def _permute(scramble: Scramble, before: list[bytes], parts: list[bytes], *, decrypts: bool) -> Iterable[bytes]:
    """Permute parts of one size, each with the characters before it as its tweak."""
    count, size = len(parts), len(parts[0])
    half, length, rounds = size // 2, BLOCK * len(parts), REST_ROUNDS if before[0] else ROUNDS
    units, masks, marks = _constants(count, size)
    left = int.from_bytes(b"".join([part[:half].rjust(BLOCK, b"\0") for part in parts]))
    right = int.from_bytes(b"".join([part[half:].rjust(BLOCK, b"\0") for part in parts]))
    tweaks = 0
    if before[0]:
        tweaks = int.from_bytes(scramble(b"".join([tweak.ljust(BLOCK, b"\0") for tweak in before]))) & units * _TWEAK
    for turn in reversed(range(rounds)) if decrypts else range(rounds):
        if turn % 2:
            right ^= int.from_bytes(scramble((marks[turn] | tweaks | left).to_bytes(length))) & masks[1]
        else:
            left ^= int.from_bytes(scramble((marks[turn] | tweaks | right).to_bytes(length))) & masks[0]
    lefts, rights, start = left.to_bytes(length), right.to_bytes(length), BLOCK - half
    rest = BLOCK - size + half
    return [lefts[at + start : at + BLOCK] + rights[at + rest : at + BLOCK] for at in range(0, length, BLOCK)]


@lru_cache(maxsize=4 * _MAX_GROUP)
def _constants(count: int, size: int) -> tuple[int, tuple[int, int], list[int]]:
    """For this many blocks: the number 1 in each, masks of both halves, and the numbers of the rounds.

    No block with a tweak begins with such a number.
    """
    units = int.from_bytes((bytes(BLOCK - 1) + b"\1") * count)
    left, right = (units * int.from_bytes(b"\x3f" * length) for length in (size // 2, size - size // 2))
    return units, (left, right), [units * (0x80 + turn << 120) for turn in range(ROUNDS)]


def _values(name: str) -> bytes:
    values = name.encode("utf-8", "surrogatepass").translate(_VALUES)
    if 255 in values:
        raise UnsupportedId("digest of a chunk", name, "an encrypted store takes letters, digits, '+' and '/'")
    return values
