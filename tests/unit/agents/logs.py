"""The log of scripted agents: each request to a model and each call of a tool, as it began."""

from __future__ import annotations

import json
from pathlib import Path


def begun(log: Path) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [_named(json.loads(line)) for line in lines]


def _named(line: dict[str, object]) -> str:
    what = f"request {line['place']}" if line["kind"] == "model" else f"call {line['call_id']}"
    return f"{line['agent']}: {what}"
