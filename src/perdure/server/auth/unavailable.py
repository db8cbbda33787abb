"""Nobody can say now who sends a request: neither yes nor no."""

from __future__ import annotations


class AuthUnavailable(Exception):
    """What tells users apart failed, which is no fault of the caller: 503, `auth_unavailable`. The reason is logged,
    and not part of the sentence, which the caller sees."""

    code = "auth_unavailable"

    def __init__(self, sentence: str = "It cannot be told now who you are. Try again later.") -> None:
        super().__init__(sentence)
