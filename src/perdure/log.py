"""Loggers `perdure.*`: silent unless the application, or PERDURE_LOG, gives them a handler.

At INFO and above a line holds ids, names, counts and sizes, never a payload: messages, state and answers belong to
users. `import perdure` does not load `logging`; the first logger, or PERDURE_LOG, does.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

ROOT = "perdure"
ENVIRONMENT_VARIABLE = "PERDURE_LOG"
LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
LEVELS = ("debug", "info", "warning", "error", "critical")

# A library must not print where logging is not configured: without this, Python writes warnings to stderr.
logging.getLogger(ROOT).addHandler(logging.NullHandler())


def get_logger(name: str) -> logging.Logger:
    """The logger `perdure.<name>`; a module passes its `__name__`, which is below `perdure` already."""
    return logging.getLogger(name if name == ROOT or name.startswith(f"{ROOT}.") else f"{ROOT}.{name}")


def configure_from_environment() -> None:
    """Log to stderr at the level that PERDURE_LOG names. Calling it again changes only the level."""
    wanted = os.environ.get(ENVIRONMENT_VARIABLE, "").strip().lower()
    if not wanted:
        return
    root = logging.getLogger(ROOT)
    root.setLevel(wanted.upper() if wanted in LEVELS else logging.INFO)
    if not any(isinstance(handler, _Stderr) for handler in root.handlers):
        handler = _Stderr()
        handler.setFormatter(logging.Formatter(LINE))
        root.addHandler(handler)
    if wanted not in LEVELS:
        root.warning("%s=%s is not a level; using info. Levels: %s", ENVIRONMENT_VARIABLE, wanted, ", ".join(LEVELS))


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """Writes to the present `sys.stderr` for each line, so that redirection and capture work."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


class NamedLines(logging.LoggerAdapter[logging.Logger]):
    """Puts `name=value` before every line, as `ctx.logger` does with thread, run and executor."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.isEnabledFor(level):
            named = " ".join(f"{name}={value}" for name, value in (self.extra or {}).items())
            prefix = named.replace("%", "%%") if args else named  # only lines with arguments are formatted
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            line = f"{prefix}: {msg}"
            self.logger.log(level, line, *args, **kwargs)
