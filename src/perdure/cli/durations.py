"""Durations on the command line: 30d, 12h, 45m, 90s."""

from __future__ import annotations

import re
from datetime import timedelta

import click

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_FORM = re.compile(rf"(\d+)([{''.join(_UNITS)}])", re.ASCII)


def duration(context: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
    """The callback of an option that takes a whole number and a unit. Raises BadParameter for anything else."""
    if value is None:
        return None
    found = _FORM.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(
            f"{value!r} is no duration: a whole number and a unit, such as 30d, 12h, 45m or 90s.", context, parameter
        )
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except (OverflowError, ValueError) as error:
        raise click.BadParameter(f"{value!r} is longer than a duration can be.", context, parameter) from error
