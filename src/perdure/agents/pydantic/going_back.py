"""What is left of a conversation once the answers that led to a dead end are taken out of it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import NamedTuple

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

ASKS_AGAIN = ("retry-prompt", "retry-feedback")
"""Parts by which pydantic-ai asks a model for another answer."""


class Left(NamedTuple):
    messages: list[ModelMessage]
    dropped: int
    """How many answers of the model were taken out, from the last one on."""
    is_last_cut: bool
    """Whether the last message is an answer that was longer before."""


def without_dead_end(before: Sequence[ModelMessage], new: Sequence[ModelMessage], finished: Container[str]) -> Left:
    """Without the last answers, as far as nothing came of them. Of one whose calls are `finished` in part these stay:
    they are not made again. `before` stays as it is."""
    kept = list(new)
    dropped = 0
    while kept:
        last = kept[-1]
        if isinstance(last, ModelResponse):
            parts = [one for one in last.parts if not isinstance(one, ToolCallPart) or one.tool_call_id in finished]
            if any(isinstance(one, ToolCallPart) for one in parts):
                kept[-1] = replace(last, parts=parts)
                return Left([*before, *kept], dropped, is_last_cut=True)
            dropped += 1
        elif not _only_asks_again(last):
            break
        kept.pop()
    return Left([*before, *kept], dropped, is_last_cut=False)


def _only_asks_again(request: ModelRequest) -> bool:
    return all(one.part_kind in ASKS_AGAIN or _is_retried(one) for one in request.parts)


def _is_retried(part: object) -> bool:
    return isinstance(part, ToolReturnPart) and part.outcome == "retried"
