"""Workflows as documents: read, checked, and made into what a builder works on."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.errors import InvalidDefinition
from perdure.orchestrations.agent_workflow.definition import WorkflowConfig
from perdure.orchestrations.agent_workflow.document_reading import Source, read
from perdure.orchestrations.agent_workflow.document_shape import SCHEMA_KEY, problems_in
from perdure.orchestrations.agent_workflow.drafting import Draft, EdgeDraft, NodeDraft


def drafted(source: Source) -> Draft:
    """A file of JSON or YAML, a dict, or a WorkflowConfig. Raises InvalidDefinition for what has not the form of a
    document, with all that is wrong; whether the workflow is sound is found out when it is built."""
    tree, file = read(source)
    return draft_of(config_of(tree, file), file)


def config_of(tree: Any, source: str | None = None) -> WorkflowConfig:
    """What was read, as a definition. Raises InvalidDefinition."""
    problems = problems_in(tree)
    if problems:
        raise InvalidDefinition(problems, source)
    try:
        return msgspec.convert({key: value for key, value in tree.items() if key != SCHEMA_KEY}, WorkflowConfig)
    except msgspec.ValidationError as error:  # whatever the words above do not cover
        raise InvalidDefinition([("", str(error))], source) from error


def draft_of(config: WorkflowConfig, source: str | None = None) -> Draft:
    return Draft(
        name=config.name,
        version=config.version,
        description=config.description,
        nodes={node_id: NodeDraft(node) for node_id, node in config.agents.items()},
        edges=[EdgeDraft(edge) for edge in config.edges],
        settings=config.settings,
        source=source,
    )
