"""For the tests of those who use perdure, and for its own. Needs no pytest, and has fixtures for it (`plugin`).

The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.testing.clock import FakeClock as FakeClock
    from perdure.testing.events import EventRecorder as EventRecorder
    from perdure.testing.faults import (
        Faults as Faults,
        FaultyStorage as FaultyStorage,
        InjectedFault as InjectedFault,
        Pause as Pause,
        ProcessGone as ProcessGone,
    )
    from perdure.testing.scripted import (
        Ask as Ask,
        Call as Call,
        ScriptedAgent as ScriptedAgent,
        ScriptedExecutor as ScriptedExecutor,
        ScriptOver as ScriptOver,
    )
    from perdure.testing.survival.compare import Survival as Survival
    from perdure.testing.survival.crash import assert_survives_crash as assert_survives_crash
    from perdure.testing.survival.kill import assert_survives_kill as assert_survives_kill

_HOME = {
    "Ask": "perdure.testing.scripted",
    "Call": "perdure.testing.scripted",
    "EventRecorder": "perdure.testing.events",
    "FakeClock": "perdure.testing.clock",
    "Faults": "perdure.testing.faults",
    "FaultyStorage": "perdure.testing.faults",
    "InjectedFault": "perdure.testing.faults",
    "Pause": "perdure.testing.faults",
    "ProcessGone": "perdure.testing.faults",
    "ScriptOver": "perdure.testing.scripted",
    "ScriptedAgent": "perdure.testing.scripted",
    "ScriptedExecutor": "perdure.testing.scripted",
    "Survival": "perdure.testing.survival.compare",
    "assert_survives_crash": "perdure.testing.survival.crash",
    "assert_survives_kill": "perdure.testing.survival.kill",
}

__all__ = list(_HOME)


if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass

    def __getattr__(name: str) -> object:
        from perdure.lazy import lazy_exports

        find, _ = lazy_exports(__name__, _HOME)
        return find(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
