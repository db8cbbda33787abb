"""Chunks: a checkpoint cut into pieces that later checkpoints of the thread share.

A chunk holds a large text, list or dict of the tree once; a reference replaces it in the tree. A value that is too
large for one chunk is a hash tree: nodes of a few elements, cut by content (`chunk_types.py`), and nodes of references
above them. An append to a list writes the new item, one small node per level, and a root of fixed size.

    {"$ref": R}                 the value that the chunk holds
    {"$list": R, "depth": n}    a list; at depth 0 the chunk holds items, else {"$of": [references]}
    {"$dict": R, "depth": n}    a dict in its order, like a list
    {"$text": R, "depth": n}    a text; always at least one level of references
    {"$plain": [[key, value]]}  a user's dict whose first key is one of these

A reference is `digest.number`: 128 bits of the SHA-256 of the chunk's bytes, and the commit that holds it. With the
number, stores need no index of digests: they look up the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_

import msgspec

from perdure.checkpoints.delta.chunk_types import (
    REFERENCES,
    RESERVED,
    Chunk,
    Layers,
    Memo,
    Piece,
    Same,
    all_kids,
    comparable,
    cut_text,
    escape,
    is_shorter,
    looks_like_chunks,
    same_ends,
    use,
    walk_chunks,
)
from perdure.codec import Tree
from perdure.names import SHORT, digest_of

SMALL = 512
"""Bytes of a value that stays in the tree."""
SMALL_ROOT = 1024
"""Bytes of a checkpoint that is not searched for large values."""
SMALL_MEMORY = 128
"""Bytes of an executor's memory that is not a chunk of its own."""
WHOLE = 1536
"""Bytes of a dict that is one chunk, rather than a tree of them."""
LONG_TEXT = 4096
"""Characters from which a text is cut into several chunks."""

_FORMS = {"list": b"[%b]", "dict": b"{%b}"}
_WORTH_A_MEMO = frozenset({list, dict, str})
_encode = msgspec.json.encode


Base = Callable[[], tuple[Iterable[Chunk], tuple[Chunk, ...]]]
"""All chunks of a checkpoint, and those that its root refers to."""


class Packed(msgspec.Struct, frozen=True, gc=False):
    """The new bytes of a checkpoint, for its commit."""

    root: bytes | None
    chunks: dict[str, bytes]
    """New chunks, by digest; `pack_events` adds those of the commit's events."""
    dropped: Sequence[str]
    """References of the checkpoint before that this one lacks, by the first characters of their digests."""


class Chunker(msgspec.Struct):
    """Packs the checkpoints of one thread, one after the other. Holds the chunks of the last one."""

    _base: Base | None = None
    """The chunks of the checkpoint before the first one; called when that is packed."""
    _chunks: dict[str, Chunk] = {}
    size: int = 0
    """Bytes of all chunks that the last checkpoint has."""
    _roots: tuple[Chunk, ...] = ()
    _texts: dict[str, Piece] = {}
    _memo: Memo = msgspec.field(default_factory=Memo)
    _number: int = 0
    _new: dict[str, bytes] = {}
    _constant: tuple[bytes, Piece] | None = None

    def pack(self, number: int, tree: dict[str, Tree] | None, constant: bytes = b"{}") -> Packed:
        """Pack the checkpoint's tree of one commit, if it has one.

        `constant` is JSON that most checkpoints have in common, stored once: the root's `graph`.
        """
        self._number = number
        self._new = {}
        if tree is None:
            return Packed(None, self._new, ())
        if self._base is not None:
            self._load_base()
        dropped: list[str] = []
        root, kids = self._root(tree, constant)
        if kids is not self._roots and kids != self._roots:
            use(kids)
            self._drop(self._roots, dropped)
            self._roots = kids
        return Packed(root, self._new, dropped or ())

    def _load_base(self) -> None:
        if self._base is None:
            return
        chunks, self._roots = self._base()
        self._base = None
        self._chunks = {chunk.digest: chunk for chunk in chunks}
        for chunk in self._chunks.values():
            use(chunk.kids)
        use(self._roots)
        self.size = sum([chunk.size for chunk in self._chunks.values()])

    def pack_events(self, events: list[Tree]) -> tuple[bytes, bool, Sequence[str]]:
        """Pack the events of the last packed commit; they share the chunks of its checkpoint.

        Returns `body`, `refers` and `own` of the `LoggedEvents`.
        """
        body = _encode(events)
        if len(body) <= SMALL and not looks_like_chunks(body):
            return body, False, ()
        self._load_base()
        before = set(self._new)
        pieces = [self._value(event, None) for event in events]
        kids = all_kids(pieces)
        own = [digest for digest in self._new if digest not in before]
        refers = any(chunk.number != self._number or chunk.digest in before for chunk in walk_chunks(kids))
        use(kids)
        self._drop(kids, [])  # the next checkpoint does not have the chunks of these events
        return b"[%b]" % b",".join([inline for inline, _ in pieces]), refers, own

    def _chunk(self, data: bytes, kids: tuple[Chunk, ...]) -> Chunk:
        digest = digest_of(data)
        chunk = self._chunks.get(digest)
        if chunk is None:
            chunk = self._chunks[digest] = Chunk(digest, self._number, len(data), kids)
            self._new[digest] = data
            self.size += chunk.size
            use(kids)
        return chunk

    def _drop(self, chunks: tuple[Chunk, ...], dropped: list[str]) -> None:
        waiting = list(chunks)
        while waiting:
            chunk = waiting.pop()
            chunk.uses -= 1
            if chunk.uses == 0:
                del self._chunks[chunk.digest]
                self.size -= chunk.size
                if chunk.text is not None:
                    self._texts.pop(chunk.text, None)
                if chunk.number != self._number:
                    dropped.append(f"{chunk.digest[:SHORT]}.{chunk.number}")
                waiting.extend(chunk.kids)

    def _root(self, tree: dict[str, Tree], constant: bytes) -> Piece:
        """The root holds its parts or references to them; the root itself is never cut."""
        last = self._constant
        if last is None or (constant is not last[0] and constant != last[0]) or last[1][1][0].uses == 0:
            data = _encode(escape(msgspec.json.decode(constant))) if looks_like_chunks(constant) else constant
            last = self._constant = (constant, self._reference(self._chunk(data, ())))
        reference, of_constant = last[1]
        memo = self._memo
        if not memo.is_large:
            small = _encode(tree)
            if len(small) <= SMALL_ROOT and not looks_like_chunks(small):
                return b'{"graph":%b%b%b' % (reference, b"," if tree else b"", small[1:]), of_constant
            memo.is_large = True
        parts: list[bytes] = [b'"graph":' + reference]
        kids: list[Chunk] = [*of_constant]
        for key, value in tree.items():
            try:
                pack = self._pack_entries if key == "executors" else self._value
                inline, held = pack(value, memo.at(key))
            except RecursionError:  # too deep to search: one chunk
                memo.at(key).forget(None)
                inline, held = self._reference(self._chunk(_encode(escape(value)), ()))
            parts.append(b'"%b":%b' % (key.encode(), inline))
            kids += held
        memo.keep(tree)
        return b"{%b}" % b",".join(parts), tuple(kids)

    def _value(self, value: Tree, memo: Memo | None) -> Piece:
        kind = type(value)
        if memo is not None:
            if memo.value is value:
                return memo.piece
            if memo.kind is not kind:
                memo.forget(kind)
        if kind is str:
            if len(value) <= SMALL:
                if memo is not None:
                    memo.forget(kind)
                return _encode(value), ()
            piece = self._text(value, memo)
        elif kind is list:
            piece = self._list(value, memo)
        elif kind is dict:
            piece = self._dict(value, memo)
        else:
            return _encode(value), ()
        if memo is not None:
            memo.value, memo.piece = value, piece
        return piece

    def _pack_entries(self, value: dict[str, Tree], memo: Memo) -> Piece:
        """A dict whose values change one by one: each is a chunk, so that a commit writes only the changed ones."""
        if memo.value is value:
            return memo.piece
        if type(value) is not dict or not RESERVED.isdisjoint(value):
            return self._value(value, memo)
        if memo.kind is not dict:
            memo.forget(dict)
        pieces: list[Piece] = []
        for key, item in value.items():
            inline, kids = self._value(item, memo.at(key))
            if len(inline) > SMALL_MEMORY:
                inline, kids = self._reference(self._chunk(inline, kids))
            pieces.append((b"%b:%b" % (_encode(key), inline), kids))
        memo.keep(value)
        same = same_ends(memo.pieces, pieces)
        memo.pieces = pieces
        piece = self._tree_of("dict", pieces, same, memo)
        if memo.layers is None:
            memo.pieces = []
        memo.value, memo.piece = value, piece
        return piece

    def _reference(self, chunk: Chunk) -> Piece:
        return b'{"$ref":%b}' % chunk.reference, (chunk,)

    def _text(self, value: str, memo: Memo | None) -> Piece:
        piece = self._texts.get(value)
        if memo is not None and (piece is not None or len(value) <= LONG_TEXT):
            memo.forget(str)  # only `_long_text` makes pieces that a longer text can continue
        if piece is not None:
            return piece
        is_long = len(value) > LONG_TEXT
        piece = self._long_text(value, memo) if is_long else self._reference(self._chunk(_encode(value), ()))
        piece[1][0].text = value
        self._texts[value] = piece
        return piece

    def _long_text(self, value: str, memo: Memo | None) -> Piece:
        same: list[Piece] = []
        done = 0
        if memo is not None and memo.pieces and value.startswith(memo.value):
            same = memo.pieces[:-1]  # the end of the text cut the last one, not its content
            done = len(memo.value) - memo.raws[0]
        parts = cut_text(value, done)
        chunks = [self._chunk(_encode(part), ()) for part in parts]
        pieces: list[Piece] = same + [(chunk.reference, (chunk,)) for chunk in chunks]
        if memo is not None:
            memo.pieces, memo.raws = pieces, [len(parts[-1])]
        return self._tree_of("text", pieces, (len(same), 0), memo, depth=1)

    def _list(self, value: list[Tree], memo: Memo | None) -> Piece:
        if memo is None or not memo.is_large:
            small = _encode(value)
            if len(small) <= SMALL and not looks_like_chunks(small):
                return small, ()
        if memo is None:
            pieces = [self._item(item, raw) for item, raw in zip(value, comparable(value), strict=True)]
            return self._tree_of("list", pieces, (0, 0), None)
        memo.is_large = True
        before = len(memo.items)
        if before <= len(value) and all(map(is_, memo.items, value)):
            same = (before, 0)
            raws = memo.raws + comparable(value[before:])
        else:
            raws = comparable(value)
            same = same_ends(memo.raws, raws)
        first, last = same
        end = len(value) - last
        by_raw = dict(zip(memo.raws[first : before - last], memo.pieces[first : before - last], strict=True))
        pieces = memo.pieces[:first]
        for item, raw in zip(value[first:end], raws[first:end], strict=True):
            pieces.append(by_raw.get(raw) or self._item(item, raw))
        pieces += memo.pieces[before - last :]
        memo.items, memo.raws, memo.pieces = value, raws, pieces
        return self._tree_of("list", pieces, same, memo)

    def _item(self, item: Tree, raw: str | int | bytes) -> Piece:
        if type(raw) is bytes and len(raw) <= SMALL and not looks_like_chunks(raw):
            return raw, ()
        inline, kids = self._value(item, None)
        return (inline, kids) if len(inline) <= SMALL else self._reference(self._chunk(inline, kids))

    def _dict(self, value: dict[str, Tree], memo: Memo | None) -> Piece:
        if memo is None or not memo.is_large:
            small = _encode(value)
            if len(small) <= SMALL and not looks_like_chunks(small):
                return small, ()
        if not RESERVED.isdisjoint(value):  # any key: each part of a cut dict has a first key
            if memo is not None:
                memo.forget(dict)
            pairs, kids = self._value([[key, item] for key, item in value.items()], None)
            return b'{"$plain":%b}' % pairs, kids
        pieces: list[Piece] = []
        for key, item in value.items():
            if memo is None or type(item) not in _WORTH_A_MEMO or (type(item) is str and len(item) <= LONG_TEXT):
                if memo is not None:
                    memo.inside.pop(key, None)
                inline, kids = self._value(item, None)
            else:
                inline, kids = self._value(item, memo.at(key))
            pieces.append((b"%b:%b" % (_encode(key), inline), kids))
        if memo is not None:
            memo.is_large = True
            memo.keep(value)
        if not is_shorter(pieces, WHOLE):
            same = (0, 0) if memo is None else same_ends(memo.pieces, pieces)
            if memo is not None:
                memo.pieces = pieces
            return self._tree_of("dict", pieces, same, memo)
        if memo is not None:
            memo.layers, memo.pieces = None, []
        inline, kids = b"{%b}" % b",".join([inline for inline, _ in pieces]), all_kids(pieces)
        return (inline, kids) if is_shorter(pieces, SMALL) else self._reference(self._chunk(inline, kids))

    def _tree_of(self, kind: str, pieces: list[Piece], same: Same, memo: Memo | None, depth: int = 0) -> Piece:
        """`same`: how many of the pieces, at both ends, are those of the memo's layers."""
        if depth == 0 and is_shorter(pieces, SMALL):
            if memo is not None:
                memo.layers = None
            return _FORMS[kind] % b",".join([inline for inline, _ in pieces]), all_kids(pieces)
        layers = Layers() if memo is None or memo.layers is None else memo.layers
        if memo is not None:
            memo.layers = layers
        form = REFERENCES if depth else _FORMS[kind]
        top, height = layers.update(pieces, same, form, self._chunk)
        return b'{"$%b":%b,"depth":%d}' % (kind.encode(), top.reference, height + depth), (top,)
