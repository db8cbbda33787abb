"""The names of chunks, as an encrypted store has them.

A chunk is named by the digest of its content. Whoever guesses the content could compare digests, so a store does not
get to see them: it gets other names, made with a key, which can be turned back. Those of one thread tell nothing of
those of another.

The first characters of a name are permuted by themselves, since references are shortened to them; the rest depends on
all of it. Each part goes through a Feistel network: in turns, one half is changed by what the key makes of the other.
All names of a commit go through it together, as one large number, with a block of 16 bytes for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache

from perdure.digests import SHORT
from perdure.errors import UnsupportedId

Scramble = Callable[[bytes], bytes]
"""A function of blocks of 16 bytes, any number of them, each turned into what nobody can tell without a key."""

ROUNDS = 8
ROUNDS_OF_REST = 4
"""Four are enough for halves of 48 bits; those of the first characters have 18."""
BLOCK = 16
_PART = 16
"""Characters of a part after the first: its halves fit into half a block."""
_AT_ONCE = 64
"""Names that go through together."""
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_VALUES = bytes(_ALPHABET.find(character) % 256 for character in range(256))
"""Of each character; 255 for one that no digest has."""
_CHARACTERS = _ALPHABET + bytes(256 - len(_ALPHABET))
_MIXED = ((1 << 56) - 1) << 64
"""Where in a block stands what a part is mixed with: before its half, after the number of the round."""


class Names:
    """Of one thread."""

    def __init__(self, scrambler: Callable[[], Scramble]) -> None:
        self._scrambler = scrambler

    def stored(self, names: Iterable[str]) -> dict[str, str]:
        """What these, or the first characters of one, are called in the store. Raises UnsupportedId."""
        return self._turned(names, is_back=False)

    def plain(self, names: Iterable[str]) -> dict[str, str]:
        """The other way. Raises UnsupportedId."""
        return self._turned(names, is_back=True)

    def _turned(self, names: Iterable[str], *, is_back: bool) -> dict[str, str]:
        given = {name: _values(name) for name in names}
        if not given:
            return {}
        scramble = self._scrambler()
        turned = dict.fromkeys(given, b"")
        start, end = 0, SHORT
        while True:
            by_size: defaultdict[int, list[str]] = defaultdict(list)
            for name, values in given.items():
                if len(values) > start:
                    by_size[min(len(values), end) - start].append(name)
            if not by_size:
                return {name: values.translate(_CHARACTERS).decode("ascii") for name, values in turned.items()}
            plain = turned if is_back else given
            for group in _bounded(by_size.values()):
                before = [plain[name][max(0, start - _PART) : start] for name in group]
                parts = [given[name][start:end] for name in group]
                for name, part in zip(group, _permuted(scramble, before, parts, is_back=is_back), strict=True):
                    turned[name] += part
            start, end = end, end + _PART


def _permuted(scramble: Scramble, before: list[bytes], parts: list[bytes], *, is_back: bool) -> Iterable[bytes]:
    """Parts of one size, each mixed with what stands before it."""
    count, size = len(parts), len(parts[0])
    half, length, rounds = size // 2, BLOCK * len(parts), ROUNDS_OF_REST if before[0] else ROUNDS
    ones, masks, marks = _constants(count, size)
    left = int.from_bytes(b"".join([part[:half].rjust(BLOCK, b"\0") for part in parts]))
    right = int.from_bytes(b"".join([part[half:].rjust(BLOCK, b"\0") for part in parts]))
    mixed = 0
    if before[0]:
        mixed = int.from_bytes(scramble(b"".join([one.ljust(BLOCK, b"\0") for one in before]))) & ones * _MIXED
    for turn in reversed(range(rounds)) if is_back else range(rounds):
        if turn % 2:
            right ^= int.from_bytes(scramble((marks[turn] | mixed | left).to_bytes(length))) & masks[1]
        else:
            left ^= int.from_bytes(scramble((marks[turn] | mixed | right).to_bytes(length))) & masks[0]
    lefts, rights, start = left.to_bytes(length), right.to_bytes(length), BLOCK - half
    rest = BLOCK - size + half
    return [lefts[at + start : at + BLOCK] + rights[at + rest : at + BLOCK] for at in range(0, length, BLOCK)]


def _bounded(groups: Iterable[list[str]]) -> Iterable[list[str]]:
    """At most so many in each that the constants for them can be remembered."""
    return (group[at : at + _AT_ONCE] for group in groups for at in range(0, len(group), _AT_ONCE))


@lru_cache(maxsize=4 * _AT_ONCE)
def _constants(count: int, size: int) -> tuple[int, tuple[int, int], list[int]]:
    """For so many blocks: a one in each, masks of both halves, and the numbers of the rounds. A block that begins with
    such a number is none that holds what stands before a part."""
    ones = int.from_bytes((bytes(BLOCK - 1) + b"\1") * count)
    left, right = (ones * int.from_bytes(b"\x3f" * length) for length in (size // 2, size - size // 2))
    return ones, (left, right), [ones * (0x80 + turn << 120) for turn in range(ROUNDS)]


def _values(name: str) -> bytes:
    values = name.encode("utf-8", "surrogatepass").translate(_VALUES)
    if 255 in values:
        raise UnsupportedId("digest of a chunk", name, "an encrypted store takes letters, digits, '+' and '/'")
    return values
