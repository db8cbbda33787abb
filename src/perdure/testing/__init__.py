"""For the tests of those who use perdure, and for its own. Needs no pytest, and has fixtures for it (`plugin`).

The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.testing.clock import (
        FakeClock as FakeClock,
    )
    from perdure.testing.crashing import (
        assert_survives_crash as assert_survives_crash,
    )
    from perdure.testing.events import (
        EventRecorder as EventRecorder,
    )
    from perdure.testing.faults import (
        Faults as Faults,
        InjectedFault as InjectedFault,
        Pause as Pause,
        ProcessGone as ProcessGone,
    )
    from perdure.testing.faulty_storage import (
        FaultyStorage as FaultyStorage,
    )
    from perdure.testing.killing import (
        assert_survives_kill as assert_survives_kill,
    )
    from perdure.testing.scripted import (
        Ask as Ask,
        ScriptedExecutor as ScriptedExecutor,
        ScriptOver as ScriptOver,
    )
    from perdure.testing.scripted_agent import (
        Call as Call,
        ScriptedAgent as ScriptedAgent,
    )
    from perdure.testing.survival import (
        Survival as Survival,
    )

_HOME = {
    "Ask": "perdure.testing.scripted",
    "Call": "perdure.testing.scripted_agent",
    "EventRecorder": "perdure.testing.events",
    "FakeClock": "perdure.testing.clock",
    "Faults": "perdure.testing.faults",
    "FaultyStorage": "perdure.testing.faulty_storage",
    "InjectedFault": "perdure.testing.faults",
    "Pause": "perdure.testing.faults",
    "ProcessGone": "perdure.testing.faults",
    "ScriptOver": "perdure.testing.scripted",
    "ScriptedAgent": "perdure.testing.scripted_agent",
    "ScriptedExecutor": "perdure.testing.scripted",
    "Survival": "perdure.testing.survival",
    "assert_survives_crash": "perdure.testing.crashing",
    "assert_survives_kill": "perdure.testing.killing",
}

__all__ = list(_HOME)


if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass

    def __getattr__(name: str) -> object:
        from perdure.lazy import lazily  # pytest loads this package for its plugin alone, and nothing else with it

        find, _ = lazily(__name__, _HOME)
        return find(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
