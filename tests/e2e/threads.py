"""Threads that tests of the command line look at: made by the workflows of office.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Call, Told

REFUND = {"$type": "office:Refund", "customer": "Bob", "amount": 12}


def ask(call: Call, thread_id: str, customer: str = "Bob", **options: Any) -> None:
    """A thread with two checkpoints that waits for an answer."""
    refund = json.dumps({"customer": customer, "amount": 12})
    done = call("run", "office:refunds", refund, "--json-input", "--thread", thread_id, **options)
    assert done.returncode == 0, done.stderr


def answer(call: Call, thread_id: str, **options: Any) -> None:
    """Two checkpoints more, and it is done."""
    done = call("answer", thread_id, "refund", '{"approved": true}', "--app", "office:refunds", **options)
    assert done.returncode == 0, done.stderr


def checkpoints_of(told: Told, thread_id: str, **options: Any) -> list[str]:
    """Oldest first."""
    return [str(one["checkpoint_id"]) for one in told("show", thread_id, **options)["checkpoints"]]


def damage(folder: Path, text: bytes = b"Eve", by: bytes = b"Ada") -> None:
    """Change what one thread of a file store has kept."""
    [file] = [one for one in folder.glob("*.jsonl") if text in one.read_bytes()]
    file.write_bytes(file.read_bytes().replace(text, by))
