"""What documents in tests name by import path: agents, functions, types, a workflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict

from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.execution.node import ApprovalContext
from perdure.agents.tools import tool
from perdure.errors import InvalidDefinition
from perdure.testing import ScriptedAgent

HERE = __name__


def agent(node_id: str = "writer") -> str:
    """The path of an agent."""
    return f"{HERE}:{node_id}"


writer = ScriptedAgent("writer", lambda messages: f"<{messages[-1].text}>")
editor = ScriptedAgent("editor", lambda messages: f"[{messages[-1].text}]")
judge = ScriptedAgent("judge", [{"score": 7, "advice": "shorter"}])
clerk = ScriptedAgent("clerk", [{"why": "late"}])


def made() -> ScriptedAgent:
    return ScriptedAgent("made", ["made by a function"])


def is_long(outputs: Mapping[str, Any]) -> bool:
    return len(str(outputs)) > 1000


def is_risky(context: ApprovalContext) -> bool:
    return "risk" in context.outputs


is_short = lambda outputs: not is_long(outputs)  # noqa: E731  # the name leads to it, its own does not


def search(query: str) -> str:
    """Find something."""
    return f"found {query}"


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


class Verdict(msgspec.Struct):
    score: int
    advice: str


class Invoice(msgspec.Struct):
    total: int


class Complaint(msgspec.Struct):
    why: str


class Tagged(msgspec.Struct, tag_field="kind", tag="tagged"):
    size: int


class Listed(msgspec.Struct, array_like=True):
    size: int


class Pair(NamedTuple):
    left: int
    right: int


class Model(BaseModel):
    title: str


class OpenModel(BaseModel):
    model_config = ConfigDict(extra="allow")
    title: str


inner = AgentWorkflow.create().with_name("inner").add_agent("say", writer).build()
number = 3


def document(**changes: Any) -> dict[str, Any]:
    """Return a valid document."""
    agents = {
        "draft": {"agent": agent("writer"), "output_key": "draft"},
        "review": {"agent": agent("editor"), "input_key": "draft"},
    }
    return {"name": "w", "agents": agents, "edges": [{"from": "draft", "to": "review"}], **changes}


def nodes(**configs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configs, with an agent added to each that names neither an agent nor a workflow."""
    return {
        node_id: config if {"agent", "workflow"} & set(config) else {"agent": agent(), **config}
        for node_id, config in configs.items()
    }


def edge(source: str, target: str, **more: Any) -> dict[str, Any]:
    return {"from": source, "to": target, **more}


def problems_of(source: Any) -> list[str]:
    """Return the problems that building an invalid document reports, one per line."""
    with pytest.raises(InvalidDefinition) as refused:
        AgentWorkflow.from_config(source).build()
    return str(refused.value).splitlines()


def problems_in_file(path: Path, text: str | bytes) -> list[str]:
    """Of a file with this in it, without the path in front."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    lines = problems_of(path)
    assert all(line.startswith(f"{path}: ") for line in lines), lines
    return [line.removeprefix(f"{path}: ") for line in lines]
