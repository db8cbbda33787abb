"""Is a workflow sound? What is not is told with its place, all of it at once."""

from __future__ import annotations

from holdfast.errors import InvalidDefinition, did_you_mean
from holdfast.orchestrations.agent_workflow.definition import END, START
from holdfast.orchestrations.agent_workflow.drafting import Draft
from holdfast.orchestrations.agent_workflow.planner import Planner


def check(draft: Draft, planner: Planner) -> None:
    """Raises InvalidDefinition."""
    problems: list[tuple[str, str]] = []
    nodes = list(draft.nodes)
    for index, edge in enumerate(draft.edges):
        for field, node, allowed in (("from", edge.config.source, START), ("to", edge.config.target, END)):
            if node not in nodes and node != allowed:
                problems.append((f"edges[{index}].{field}", f"there is no node {node!r}{did_you_mean(node, nodes)}"))
    if draft.settings.checkpointing and draft.store is None:
        problems.append(
            ("settings.checkpointing", "there is no workflow store: add one, such as with_sqlite_workflow_store(path)")
        )
    if planner.back and draft.settings.max_iterations is None:
        problems.append(("settings.max_iterations", "missing: the workflow has a cycle"))
    if problems:
        raise InvalidDefinition(problems)
