"""Threads for the tests of the command line, created by the workflows of office.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Call, CallJson

REFUND = {"$type": "office:Refund", "customer": "Bob", "amount": 12}


def ask(call: Call, thread_id: str, customer: str = "Bob", **options: Any) -> None:
    """Create a thread with two checkpoints that waits for an answer."""
    refund = json.dumps({"customer": customer, "amount": 12})
    done = call("run", "office:refunds", refund, "--json-input", "--thread", thread_id, **options)
    assert done.returncode == 0, done.stderr


def answer(call: Call, thread_id: str, **options: Any) -> None:
    """Answer the request of a thread. Adds two checkpoints and completes the thread."""
    done = call("answer", thread_id, "refund", '{"approved": true}', "--app", "office:refunds", **options)
    assert done.returncode == 0, done.stderr


def checkpoints_of(call_json: CallJson, thread_id: str, **options: Any) -> list[str]:
    """The checkpoint ids of a thread, oldest first."""
    return [str(checkpoint["checkpoint_id"]) for checkpoint in call_json("show", thread_id, **options)["checkpoints"]]


def damage(folder: Path, text: bytes = b"Eve", by: bytes = b"Ada") -> None:
    """Change a text in the file of one thread of a file store."""
    [file] = [path for path in folder.glob("*.jsonl") if text in path.read_bytes()]
    file.write_bytes(file.read_bytes().replace(text, by))
