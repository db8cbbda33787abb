"""One thing that is wrong with a configuration, as an error."""

from __future__ import annotations

from perdure.server.config_errors import InvalidConfig, Problem


def invalid(place: str, sentence: str) -> InvalidConfig:
    """`place` is the key, such as `auth.path`, the environment variable, or the file."""
    return InvalidConfig([Problem(None, place, sentence)])
