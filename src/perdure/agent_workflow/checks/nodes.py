"""Can each node do what its config says?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from perdure.agent_workflow.builder.draft import Draft, NodeDraft
from perdure.agent_workflow.checks.edges import condition_problems, no_node
from perdure.agent_workflow.definition.config import END, START, AgentConfig
from perdure.agent_workflow.definition.references import type_title
from perdure.agent_workflow.documents.rules import Problem, at
from perdure.agent_workflow.node.inputs import INPUT

_ID = re.compile(r"[A-Za-z0-9_-]+")


def node_problems(draft: Draft) -> Iterator[Problem]:
    if not draft.nodes:
        yield "agents", "missing: a workflow needs a node"
    for node_id, node in draft.nodes.items():
        place = at("agents", node_id)
        if node_id in (START, END, INPUT):
            yield place, f"{START}, {END} and {INPUT} are reserved. Give the node another id"
        elif not _ID.fullmatch(node_id):
            yield place, "expected an id of letters, digits, _ and -"
        yield from _who(node, place, draft)
        yield from _outputs(node, place)
        yield from _handoffs(node, place, draft)
        yield from _fallback(node_id, node, place, draft)
        yield from _approval(node_id, node, place)
        retry = node.config.retry
        if retry is not None and retry.max_delay is not None and retry.max_delay < retry.initial_delay:
            text = f"{retry.max_delay:g} s is shorter than initial_delay, {retry.initial_delay:g} s"
            yield f"{place}.retry.max_delay", text


def _who(node: NodeDraft, place: str, draft: Draft) -> Iterator[Problem]:
    """Who does the work."""
    config = node.config
    is_agent = node.agent is not None or config.agent is not None
    is_workflow = node.workflow is not None or config.workflow is not None
    if is_agent and is_workflow:
        yield place, "has an agent and a workflow: a node is one of them"
    elif not is_agent and not is_workflow:
        yield place, "missing: a node needs an agent, or a workflow"
    if isinstance(config.agent, AgentConfig) and config.agent.model is None and draft.settings.model is None:
        how = "name a model here, or one for the whole workflow (settings.model, with_model)"
        yield f"{place}.agent.model", f"missing: {how}"
    if is_workflow:
        for field, is_given in (
            ("output_mode", config.output_mode != "string"),
            ("map", config.map is not None),
            ("instructions", config.instructions is not None),
            ("context", bool(config.context)),
            ("tools", bool(config.tools or node.tools)),
        ):
            if is_given:
                yield f"{place}.{field}", "is of agents, and this node is a workflow"


def _outputs(node: NodeDraft, place: str) -> Iterator[Problem]:
    mode, config, here = node.config.output_mode, node.config, f"{place}.output_types"
    count = max(len(node.types), len(config.output_types))
    if mode == "structured" and count != 1:
        yield here, f"expected one type, since output_mode is 'structured'; got {count}"
    elif mode == "union" and not count:
        yield here, "expected types, since output_mode is 'union'; got none"
    elif mode in ("string", "handoff") and count:
        yield here, f"are of structured and union outputs, and output_mode is {mode!r}"
    for name, times in Counter(type_title(one) for one in node.types).items():
        if mode == "union" and times > 1:
            yield here, f"{times} of them are called {name!r}, so that 'matched_type' cannot tell them apart"
    if mode == "handoff" and config.map is not None:
        yield f"{place}.map", "a node that hands off runs once, not for each item of a list"


def _handoffs(node: NodeDraft, place: str, draft: Draft) -> Iterator[Problem]:
    config, seen = node.config, set[str]()
    for index, handoff in enumerate(config.handoffs):
        here = f"{place}.handoffs[{index}].target"
        yield from _handoff(handoff.target, here, draft)
        if handoff.target in seen:
            yield here, f"{handoff.target!r} is among them already"
        seen.add(handoff.target)
    if config.default_handoff is not None:
        yield from _handoff(config.default_handoff, f"{place}.default_handoff", draft)
    has_some = bool(config.handoffs) or config.default_handoff is not None
    if has_some and config.output_mode != "handoff":
        yield f"{place}.output_mode", f"expected 'handoff', since there are handoffs; got {config.output_mode!r}"
    elif config.output_mode == "handoff" and not has_some:
        yield f"{place}.handoffs", "missing: output_mode is 'handoff', and there is nobody to hand off to"


def _handoff(target: str, place: str, draft: Draft) -> Iterator[Problem]:
    if target not in draft.nodes and target != END:
        yield place, no_node(target, [*draft.nodes, END])


def _fallback(node_id: str, node: NodeDraft, place: str, draft: Draft) -> Iterator[Problem]:
    error, here = node.config.on_error, f"{place}.on_error.fallback"
    target = error.fallback
    if error.mode != "fallback":
        if target is not None:
            yield f"{place}.on_error.mode", f"expected 'fallback', since a fallback is named; got {error.mode!r}"
        return
    if target is None:
        yield here, "missing: the mode is 'fallback', and no node is named that stands in"
    elif target == node_id:
        yield here, "a node does not stand in for itself"
    elif target not in draft.nodes:
        yield here, no_node(target, list(draft.nodes))
    else:
        yield from _stand_in(node_id, target, here, draft)


def _stand_in(node_id: str, target: str, here: str, draft: Draft) -> Iterator[Problem]:
    """A fallback runs when somebody has failed, and then alone."""
    for index, edge in enumerate(draft.edges):
        if edge.config.target == target:
            yield here, f"{target!r} cannot stand in: an edge leads to it, {at('edges', index)}"
            return
    handing = next((one for one, node in draft.nodes.items() if target in _handed_to(node)), None)
    if handing is not None:
        yield here, f"{target!r} cannot stand in: {handing!r} hands off to it"
        return
    path = [node_id]
    while path[-1] in draft.nodes:
        error = draft.nodes[path[-1]].config.on_error
        if error.mode != "fallback" or error.fallback is None:
            return
        path.append(error.fallback)
        if error.fallback in path[:-1]:
            break
    if path[-1] == node_id and len(path) > 2:
        yield here, f"goes round in a circle: {' -> '.join(path)}"


def _handed_to(node: NodeDraft) -> set[str | None]:
    return {*(one.target for one in node.config.handoffs), node.config.default_handoff}


def _approval(node_id: str, node: NodeDraft, place: str) -> Iterator[Problem]:
    approval = node.config.approval
    if approval is not None and approval.timeout_behavior == "auto_approve" and not approval.timeout:
        yield f"{place}.approval.timeout", "missing: 'auto_approve' is what happens when it is over"
    if approval is not None and approval.when is not None:
        yield from condition_problems(approval.when, f"{place}.approval.when", node_id, [node], is_approval=True)
