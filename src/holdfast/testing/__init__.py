"""For the tests of those who use holdfast, and for its own. Needs no pytest, and has fixtures for it (`plugin`).

The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.clock import (
        FakeClock as FakeClock,
    )
    from holdfast.testing.crashing import (
        assert_survives_crash as assert_survives_crash,
    )
    from holdfast.testing.events import (
        EventRecorder as EventRecorder,
    )
    from holdfast.testing.faults import (
        Faults as Faults,
        InjectedFault as InjectedFault,
        Pause as Pause,
        ProcessGone as ProcessGone,
    )
    from holdfast.testing.faulty_storage import (
        FaultyStorage as FaultyStorage,
    )
    from holdfast.testing.killing import (
        assert_survives_kill as assert_survives_kill,
    )
    from holdfast.testing.scripted import (
        Ask as Ask,
        ScriptedExecutor as ScriptedExecutor,
        ScriptOver as ScriptOver,
    )
    from holdfast.testing.scripted_agent import (
        Call as Call,
        ScriptedAgent as ScriptedAgent,
    )
    from holdfast.testing.survival import (
        Survival as Survival,
    )

_HOME = {
    "Ask": "holdfast.testing.scripted",
    "Call": "holdfast.testing.scripted_agent",
    "EventRecorder": "holdfast.testing.events",
    "FakeClock": "holdfast.testing.clock",
    "Faults": "holdfast.testing.faults",
    "FaultyStorage": "holdfast.testing.faulty_storage",
    "InjectedFault": "holdfast.testing.faults",
    "Pause": "holdfast.testing.faults",
    "ProcessGone": "holdfast.testing.faults",
    "ScriptOver": "holdfast.testing.scripted",
    "ScriptedAgent": "holdfast.testing.scripted_agent",
    "ScriptedExecutor": "holdfast.testing.scripted",
    "Survival": "holdfast.testing.survival",
    "assert_survives_crash": "holdfast.testing.crashing",
    "assert_survives_kill": "holdfast.testing.killing",
}

__all__ = list(_HOME)


if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass

    def __getattr__(name: str) -> object:
        from holdfast.lazy import lazily  # pytest loads this package for its plugin alone, and nothing else with it

        find, _ = lazily(__name__, _HOME)
        return find(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
