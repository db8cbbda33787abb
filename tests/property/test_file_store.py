"""Random acts on a file store whose index is taken away in between: the files alone hold all there is to know."""

from __future__ import annotations

from typing import Any

from hypothesis.stateful import rule, run_state_machine_as_test
from tests.conformance.stores import STORES
from tests.property.store_model import Thread
from tests.property.test_stores import Beside, some_examples


class WithoutItsIndex(Beside):
    """What only the index knows goes with it: who owns a thread, and the order of commits across threads."""

    def __init__(self) -> None:
        super().__init__("file")
        self.was_lost = False

    @rule()
    def lose_index(self) -> None:
        self.do(self.store.close())
        for path in (self.folder / "threads").glob("index.db*"):
            path.unlink()
        self.store = STORES["file"](self.folder)
        self.was_lost = True
        for name, thread in list(self.model.threads.items()):
            thread.owner, thread.fence = None, 0  # no owner is alive after a restart of the machine
            self.leases.pop(name, None)
            if thread.is_empty:
                del self.model.threads[name]

    def in_order(self, content: dict[str, Any]) -> dict[str, Any]:
        listed = ("infos", "roots", "threads")
        return {
            key: sorted(value, key=repr) if key in listed and self.was_lost else value for key, value in content.items()
        }

    def known_ids(self, thread: Thread) -> list[str]:
        """Of its own thread: which of two threads has an id is also known by order alone."""
        return [kept.info.checkpoint_id for kept in thread.checkpoints if kept.info is not None]


def test_file_store_matches_the_model_although_its_index_is_lost() -> None:
    run_state_machine_as_test(WithoutItsIndex, settings=some_examples(18))
