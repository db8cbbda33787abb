"""The short ways of writing a key: `"auth": "jwt"`, `"authorization": "guards:decide"`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from perdure.errors import did_you_mean
from perdure.server.config import AuthConfig
from perdure.server.config_reading import Reading, fields_of

METHODS = get_args(fields_of(AuthConfig)["method"])
BACKENDS = {
    "ownership": "ownership",
    "allow_all": "allow_all",
    "default": "allow_all",
    "none": "allow_all",
    "rbac": "rbac",
}
_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
OBJECT_PATH = re.compile(rf"{_NAME}:{_NAME}")
"""`module:attribute`."""


def in_full(tree: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """The same with an object for each part. What cannot be one is told of, and left out."""
    whole = dict(tree)
    for key, write_out in (("auth", _auth), ("authorization", _authorization)):
        if key in whole:
            part = write_out(whole.pop(key), reading)
            if part is not None:
                whole[key] = part
    return whole


def _auth(given: Any, reading: Reading) -> Any:
    if given is None or isinstance(given, Mapping):
        return given
    if given in METHODS:
        return {"method": given}
    guess = did_you_mean(given, METHODS) if isinstance(given, str) else ""
    got = "another text" if isinstance(given, str) else reading.shown("auth", given)  # it may be the secret itself
    methods = ", ".join(repr(one) for one in METHODS)
    reading.say("auth", f"expected null, one of {methods}, or an object with `method`, got {got}{guess}.")
    return None


def _authorization(given: Any, reading: Reading) -> Any:
    if given is None or isinstance(given, Mapping):
        return given
    if isinstance(given, str) and given in BACKENDS:
        return {"backend": BACKENDS[given]}
    if isinstance(given, str) and OBJECT_PATH.fullmatch(given):
        return {"backend": "custom", "path": given}
    guess = did_you_mean(given, BACKENDS) if isinstance(given, str) else ""
    reading.say(
        "authorization",
        f"expected null, one of {', '.join(repr(one) for one in BACKENDS)}, a 'module:attribute', or an object with "
        f"`backend`, got {reading.shown('authorization', given)}{guess}.",
    )
    return None
