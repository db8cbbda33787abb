"""Views of threads as JSON: kept until they are old, or others need the room."""

from __future__ import annotations

import pytest

from perdure.server.threads import threads
from perdure.server.threads.threads import ENTRY_BYTES, Views


def test_a_view_is_returned_until_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    views = Views()
    assert views.get("key") is None
    views.put("key", b"{}")
    assert views.get("key") == b"{}"
    monkeypatch.setattr(threads, "MAX_VIEW_SECONDS", 0.0)
    assert views.get("key") is None


def test_views_take_no_more_room_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MAX_VIEWS_BYTES", 3 * (100 + ENTRY_BYTES))
    views = Views()
    for number in (1, 2, 2, 3, 4):
        views.put(number, b"x" * 100)
    assert [views.get(number) is not None for number in (1, 2, 3, 4)] == [False, True, True, True]
    views.put(5, b"x" * 10_000)
    assert all(views.get(number) is None for number in (1, 2, 3, 4, 5)), "a view that is too large is not kept"
