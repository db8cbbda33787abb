"""Projects and servers that the tests of this folder share."""

from __future__ import annotations
