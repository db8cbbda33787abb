"""What tests draw from: one fixed seed in `make test`; another in every soak, printed so that it can be repeated."""

from __future__ import annotations

import os
import random
import zlib

SOAK = bool(os.environ.get("PERDURE_SOAK"))
"""Whether the same properties are explored for long, with new draws."""
SEED = int(os.environ.get("PERDURE_SEED") or (random.SystemRandom().randrange(1, 2**32) if SOAK else 1))
"""PERDURE_SEED repeats the draws of a soak."""


def draw_seed() -> int:
    """A seed of the running test, so that two tests do not draw the same. pytest shows it with a failure."""
    print(f"PERDURE_SEED={SEED}")
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    return zlib.crc32(f"{SEED} {test}".encode())
