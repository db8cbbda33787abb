"""Is a workflow sound? What is not is told with its place, all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.errors import InvalidDefinition
from perdure.orchestrations.agent_workflow.checking_edges import edge_problems
from perdure.orchestrations.agent_workflow.checking_keys import key_problems
from perdure.orchestrations.agent_workflow.checking_nodes import node_problems
from perdure.orchestrations.agent_workflow.checking_ways import way_problems
from perdure.orchestrations.agent_workflow.document_shape import problems_in, tree_of
from perdure.orchestrations.agent_workflow.drafting import Draft
from perdure.orchestrations.agent_workflow.finding import find
from perdure.orchestrations.agent_workflow.places import Problem


def check(draft: Draft) -> None:
    """What is named by import path is found on the way, and put into the draft. Raises InvalidDefinition."""
    from perdure.orchestrations.agent_workflow.assembling import definition_of

    problems = problems_in(tree_of(definition_of(draft)), is_document=False)
    if not problems:  # what has not its form cannot be asked anything else
        problems = [
            *find(draft),
            *node_problems(draft),
            *key_problems(draft),
            *edge_problems(draft),
            *way_problems(draft),
            *_settings_problems(draft),
        ]
    if problems:
        raise InvalidDefinition(problems, draft.source)


def _settings_problems(draft: Draft) -> Iterator[Problem]:
    settings = draft.settings
    if settings.checkpointing and draft.store is None:
        how = "there is no workflow store: add one, such as with_sqlite_workflow_store(path)"
        yield "settings.checkpointing", how
    if settings.conversation.mode != "none" and draft.session_store is None:
        how = "there is no session store: add one, such as with_json_session_store(folder)"
        yield "settings.conversation.mode", f"{settings.conversation.mode!r} keeps what is said, and {how}"
    if _is_encrypted(getattr(draft.store, "store", None)):
        yield from _plain_conversations(draft, "")


def _is_encrypted(store: Any) -> bool:
    while store is not None and not hasattr(store, "rekey"):  # which only an encrypted one has
        store = getattr(store, "inner", None)
    return store is not None


def _plain_conversations(draft: Draft, within: str) -> Iterator[Problem]:
    """What is encrypted in checkpoints is not to be found in plain text beside them. Also of workflows that are
    nodes: they run in the same execution."""
    mode = draft.settings.conversation.mode
    if mode != "none" and getattr(draft.session_store, "keeps_plain_text", False):
        how = "give the session store a key, too, such as with_json_session_store(folder, encryption=AesGcm(key))"
        told = f"{mode!r} keeps what is said as plain text, and the workflow store is encrypted: {how}"
        yield f"{within}settings.conversation.mode", told
    for node_id, node in draft.nodes.items():
        if node.workflow is not None:
            yield from _plain_conversations(node.workflow._draft, f"{within}agents.{node_id}.workflow.")
