"""What goes wrong in an agent's turn, said in terms of the agent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic_ai.exceptions import UsageLimitExceeded

from perdure.errors import AgentFailed, PerdureError, UsageLimitReached


@contextmanager
def told_of(agent_name: str) -> Iterator[None]:
    """Errors of models and of pydantic-ai name the agent, and say what is left of the turn."""
    try:
        yield
    except UsageLimitExceeded as error:
        raise UsageLimitReached(
            agent_name,
            f"a limit of its usage was reached: {_sentence(error)}",
            "Finished calls of the turn are recorded. Give it other usage_limits and resume, or say something else.",
        ) from error
    except PerdureError:
        raise
    except Exception as error:
        raise AgentFailed(
            agent_name,
            f"its turn failed with {type(error).__name__}: {_sentence(error)}",
            "Finished calls of the turn are recorded, and a resume goes on after them.",
        ) from error


def dead_end(agent_name: str, error: Exception) -> AgentFailed:
    """Of a turn whose model gave nothing that can be used, as often as it was asked."""
    failure = AgentFailed(
        agent_name,
        f"its turn failed with {type(error).__name__}: {_sentence(error)}",
        "Finished calls of the turn are recorded. Mend the model, its tools or what it is told, and resume: the model "
        "is asked again, without the answers that led here.",
    )
    failure.__cause__ = error
    return failure


def _sentence(error: Exception) -> str:
    text = str(error).strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
