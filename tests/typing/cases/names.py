"""Misspelt public names are found before a program runs. Checked by tests/typing/test_cases.py, never run."""

from holdfast import HoldfastError, HoldfastEror  # expect: error [attr-defined]

wrong: int = HoldfastError("text")  # expect: error [assignment]
