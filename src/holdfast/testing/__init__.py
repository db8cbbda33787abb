"""Helpers for the tests of those who use holdfast, and for its own."""

from holdfast.testing.clock import FakeClock

__all__ = ["FakeClock"]
