"""Misspelt public names are found before a program runs. Checked by tests/typing/test_cases.py, never run."""

from perdure import PerdureError, PerdureEror  # expect: error [attr-defined]

wrong: int = PerdureError("text")  # expect: error [assignment]
