"""Every error that perdure raises. A message gives the failure, its reason, and the remedy.

The tree of all classes is in docs/reference/errors.md.
"""

from __future__ import annotations

import re

from perdure.errors.base import *  # noqa: F403  # each error is public
from perdure.errors.running import *  # noqa: F403  # as above
from perdure.errors.wording import did_you_mean as did_you_mean, type_name as type_name, type_names as type_names

__all__ = [
    name
    for name, value in globals().items()
    if not name.startswith("_") and getattr(value, "__module__", "").startswith(f"{__name__}.")
]


def _publish(name: str) -> None:
    """Give an error its public module, which tracebacks, spans and pickles name, and the code of its name."""
    value = globals()[name]
    value.__module__ = __name__
    if isinstance(value, type) and issubclass(value, PerdureError) and "code" not in vars(value):  # noqa: F405
        value.code = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


for _name in __all__:
    _publish(_name)
