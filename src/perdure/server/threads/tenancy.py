"""Whose threads: each user's are kept under a prefix of their own, so nobody can name another's."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from perdure.names import RESERVED_THREAD
from perdure.server.auth.principal import Principal
from perdure.server.problems import HttpProblem

LONGEST_ID = 255


class Space(msgspec.Struct, frozen=True):
    """The threads that somebody may see. Ids outside are what clients use; ids inside are what the storage knows."""

    prefix: str = ""
    user_id: str | None = None

    def inside(self, thread_id: str) -> str:
        """Raises HttpProblem for what cannot be an id."""
        check_id("thread_id", thread_id)
        if thread_id == "import":
            raise HttpProblem(422, "invalid_id", "thread_id 'import' is the name of a route.", field="thread_id")
        return f"{self.prefix}{thread_id}"

    def outside(self, stored_id: str) -> str:
        return stored_id.removeprefix(self.prefix)

    def holds(self, stored_id: str) -> bool:
        return stored_id.startswith(self.prefix)

    def said(self, sentence: str) -> str:
        """A sentence with ids as clients know them: they stand in quotes there."""
        if not self.prefix:
            return sentence
        return sentence.replace(f"'{self.prefix}", "'").replace(f'"{self.prefix}', '"')


EVERYTHING = Space()


def space_of(principal: Principal, *, isolates: bool) -> Space:
    if principal.user_id is None or not isolates:
        return Space(user_id=principal.user_id)
    # Quoted, so that the user `a/b` with thread `c` is not the user `a` with thread `b/c`.
    return Space(f"{quote(principal.user_id, safe='')}/", principal.user_id)


def check_id(name: str, given: str) -> None:
    """Ids stand in paths, headers and logs. Raises HttpProblem."""
    if not given or len(given) > LONGEST_ID:
        raise HttpProblem(422, "invalid_id", f"{name} must have 1 to {LONGEST_ID} characters.", field=name)
    if "/" in given or "\\" in given or not given.isprintable() or given in (".", "..", RESERVED_THREAD):
        raise HttpProblem(
            422, "invalid_id", f"{name} must be printable text without slashes, other than '.' and '..'.", field=name
        )
    try:
        given.encode()
    except UnicodeEncodeError:
        raise HttpProblem(422, "invalid_id", f"{name} must be text that can be written as UTF-8.", field=name) from None
