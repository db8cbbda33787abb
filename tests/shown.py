"""Names of parametrised cases that are the same in every process, so that a run can be spread over several."""

from __future__ import annotations

import re


def shown(value: object) -> str:
    """`repr` without addresses, and sets in a fixed order."""
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(shown, value))) + "}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
