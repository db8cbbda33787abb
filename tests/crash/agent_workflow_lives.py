"""One life of an execution of a generated workflow of agents: to its end, or killed at a chosen instant."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from tests.crash.lives import PLACES
from tests.crash.teams import Instant, notes_of
from tests.property.agent_workflow_driving import taken_to_its_end
from tests.property.agent_workflow_plans import Plan, a_plan, built

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.definition import START, ConversationMode
from perdure.agent_workflow.sessions import StorageSessionStore
from perdure.records import JournalEntry
from perdure.testing import Faults, FaultyStorage


class Order(TypedDict):
    place: str
    folder: str
    plan: int
    """The seed of the workflow."""
    execution_id: str
    kill_at: Instant | None


def plan_of(seed: int) -> Plan:
    return a_plan(random.Random(seed))


# What is imported when a workflow is first built: once where lives are forked, and not in each of them.
WARMED = (built(plan_of(0), lambda builder: builder), FaultyStorage)


def live(order: Order, report_ready: Callable[[], object]) -> None:
    asyncio.run(_Life(order).live(report_ready))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Life:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._plan = plan_of(order["plan"])
        path = notes_of(Path(order["folder"]), order["execution_id"])
        self._notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._repaired = path.with_suffix(".mended")
        self._begun = 0

    async def live(self, report_ready: Callable[[], object]) -> None:
        order, kill_at = self._order, self._order["kill_at"]
        self._note(life=True)
        storage = PLACES[order["place"]](Path(order["folder"]))
        faults = Faults()
        faults.watch(self._written)
        if kill_at is not None and kill_at["point"] != "begin":
            faults.call(kill_at["point"], _die, nth=kill_at["nth"], when=kill_at["when"])  # type: ignore[arg-type]
        faulty = faults.wrap(storage)
        sessions = StorageSessionStore(faulty)

        def complete(builder: AgentWorkflow) -> AgentWorkflow:
            """Every second workflow has a conversation, in the same storage: kills fall into its writes, too."""
            mode: ConversationMode = "per_agent" if order["plan"] % 2 else "none"
            builder.with_session_store(sessions).with_conversation(mode)
            return builder.with_checkpointing().with_workflow_store(faulty)

        workflow = built(
            self._plan,
            complete,
            is_repaired=self._repaired.exists,
            log=self._begin,
        )
        report_ready()
        result = await taken_to_its_end(workflow, self._plan, order["execution_id"], self._repaired.touch)
        known = await workflow.find(order["execution_id"])
        assert known is not None and known.state is not None
        ended = {
            "outputs": result.outputs,
            "final_answer": result.final_answer,
            "success": result.success,
            "error": result.error,
            "nodes": {name: node.status for name, node in known.state.nodes.items() if name != START},
            "passes": known.state.passes,
            "said": await self._messages(sessions),
        }
        await storage.close()
        self._note(ended=ended, writes=dict(faults.counts))

    async def _messages(self, sessions: StorageSessionStore) -> dict[str, list[str]]:
        """Of each node, as its thread of the session has them."""
        session_id = f"workflow-planned-{self._order['execution_id']}"
        threads = await sessions.threads(session_id)
        return {
            thread: [str(message) for message in await sessions.messages(session_id, thread)]
            for thread in sorted(threads)
        }

    def _begin(self, call: Mapping[str, Any]) -> None:
        if self._is_broken(call["agent"]):
            return  # a failure that stops: to ask once more is what a resume is for
        self._note(begun=call["agent"])
        self._begun += 1
        kill_at = self._order["kill_at"]
        if kill_at is not None and kill_at["point"] == "begin" and kill_at["nth"] == self._begun:
            _die()

    def _written(self, point: str, written: Any) -> None:
        """Note what the store has acknowledged. The model must not be asked again."""
        if not isinstance(written, JournalEntry):
            return
        record = json.loads(written.body)
        kind, (node, _, what) = record.get("kind"), str(record.get("name")).partition(".")
        # The answer of a model counts at once. Its failure counts with the failure of the turn: until then it is taken
        # back, so that a retry of the turn asks again.
        is_answered = kind == "step" and what == "model"
        is_failed = kind == "failed" and f"{node} = turn" in record["key"] and not what and not self._is_broken(node)
        if is_answered or is_failed:
            self._note(recorded=node)

    def _is_broken(self, node: str) -> bool:
        return self._plan.node(node).fails == "at first" and not self._repaired.exists()

    def _note(self, **what: Any) -> None:
        os.write(self._notes, json.dumps(what).encode() + b"\n")  # the system's from now on: a kill cannot take it
