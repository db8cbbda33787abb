"""A turn that its model led to a dead end fails, and a resume asks the model again."""

from __future__ import annotations

from perdure.agents.recording import recorded
from perdure.errors import AgentFailed


class DeadEnds:
    """Those of one turn: its model's answers are recorded, and would lead there again whenever the turn is run."""

    def __init__(self, agent_name: str) -> None:
        self._agent_name = agent_name
        self._met = 0

    async def meet(self, failure: AgentFailed) -> None:
        """Raises the failure, until the delivery has failed with it: then the turn is to go on some other way. Code
        that caught it meets it again when it is run again."""
        self._met += 1
        is_new = False

        async def reach() -> None:
            nonlocal is_new
            is_new = True

        async def leave() -> None:
            if is_new:
                raise failure

        key = str(self._met)
        await recorded(reach, name=f"{self._agent_name}.dead_end", key=key)
        # Another step: its failure is taken back when the delivery fails with it, which the first one remembers.
        await recorded(leave, name=f"{self._agent_name}.way_out", key=key)
