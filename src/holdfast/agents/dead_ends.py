"""A turn that its model led to a dead end fails, and a resume asks the model again."""

from __future__ import annotations

from typing import TypeVar

from holdfast.agents.recording import recorded
from holdfast.errors import AgentFailed

T = TypeVar("T")


class DeadEnds:
    """Those of one turn: its model's answers are recorded, and would lead there again whenever the turn is run."""

    def __init__(self, agent_name: str) -> None:
        self._agent_name = agent_name
        self._met = 0

    async def meet(self, failure: AgentFailed, left: T) -> T:
        """Raises the failure. Once the delivery has failed with it, gives `left` instead: what to go on from. Code that
        caught it meets it again when it is run again."""
        self._met += 1
        is_new = False

        async def reach() -> None:
            nonlocal is_new
            is_new = True

        async def leave() -> T:
            if is_new:
                raise failure
            return left

        key = str(self._met)
        await recorded(reach, name=f"{self._agent_name}.dead_end", key=key)
        # Another step: its failure is taken back when the delivery fails with it, which the first one remembers.
        gone_on: T = await recorded(leave, name=f"{self._agent_name}.way_out", key=key)
        return gone_on
