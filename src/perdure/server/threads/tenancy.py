"""Tenancy: each user's threads have a separate prefix, so no user can name another's thread."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from perdure.names import RESERVED_THREAD
from perdure.server.auth.principal import Principal
from perdure.server.problems import HttpProblem

LONGEST_ID = 255


class Space(msgspec.Struct, frozen=True):
    """The threads of one user. Clients use public ids; the storage uses stored ids, which have the prefix."""

    prefix: str = ""
    user_id: str | None = None

    def stored_id(self, thread_id: str) -> str:
        """The id in the storage. Raises HttpProblem for an invalid id."""
        check_id("thread_id", thread_id)
        if thread_id == "import":
            raise HttpProblem(
                422, "invalid_id", "thread_id must not be 'import', which is the name of a route.", field="thread_id"
            )
        return f"{self.prefix}{thread_id}"

    def public_id(self, stored_id: str) -> str:
        return stored_id.removeprefix(self.prefix)

    def holds(self, stored_id: str) -> bool:
        return stored_id.startswith(self.prefix)

    def with_public_ids(self, sentence: str) -> str:
        """Replace stored ids in quotes by public ids."""
        if not self.prefix:
            return sentence
        return sentence.replace(f"'{self.prefix}", "'").replace(f'"{self.prefix}', '"')


EVERYTHING = Space()


def space_of(principal: Principal, *, isolates: bool) -> Space:
    if principal.user_id is None or not isolates:
        return Space(user_id=principal.user_id)
    # Quoted, so that the user `a/b` with thread `c` is not the user `a` with thread `b/c`.
    return Space(f"{quote(principal.user_id, safe='')}/", principal.user_id)


def check_id(name: str, value: str) -> None:
    """Raises HttpProblem for an id that is unsafe in paths, headers and logs."""
    if not value or len(value) > LONGEST_ID:
        raise HttpProblem(422, "invalid_id", f"{name} must have 1 to {LONGEST_ID} characters.", field=name)
    if "/" in value or "\\" in value or not value.isprintable() or value in (".", "..", RESERVED_THREAD):
        raise HttpProblem(
            422, "invalid_id", f"{name} must be printable text without slashes, other than '.' and '..'.", field=name
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise HttpProblem(422, "invalid_id", f"{name} must be text that UTF-8 can encode.", field=name) from None
