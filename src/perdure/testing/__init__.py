"""Tools for tests of users, and for those of perdure. Needs no pytest, and has fixtures for it (`plugin`).

The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.testing.clock import FakeClock as FakeClock
    from perdure.testing.crash import Survival as Survival, assert_survives_crash as assert_survives_crash
    from perdure.testing.events import EventRecorder as EventRecorder
    from perdure.testing.faults import (
        Faults as Faults,
        FaultyStorage as FaultyStorage,
        InjectedFault as InjectedFault,
        Pause as Pause,
        ProcessGone as ProcessGone,
    )
    from perdure.testing.kill import assert_survives_kill as assert_survives_kill
    from perdure.testing.scripted import (
        Ask as Ask,
        Call as Call,
        ScriptedAgent as ScriptedAgent,
        ScriptedExecutor as ScriptedExecutor,
        ScriptOver as ScriptOver,
    )

_NAMES = {
    "perdure.testing.clock": "FakeClock",
    "perdure.testing.events": "EventRecorder",
    "perdure.testing.faults": "Faults FaultyStorage InjectedFault Pause ProcessGone",
    "perdure.testing.scripted": "Ask Call ScriptOver ScriptedAgent ScriptedExecutor",
    "perdure.testing.crash": "Survival assert_survives_crash",
    "perdure.testing.kill": "assert_survives_kill",
}
_HOME = dict(sorted((name, home) for home, names in _NAMES.items() for name in names.split()))

__all__ = list(_HOME)


if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass

    def __getattr__(name: str) -> object:
        from perdure.names import lazy_exports

        find, _ = lazy_exports(__name__, _HOME)
        return find(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
