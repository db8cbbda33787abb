"""Checks of a whole workflow, of its nodes and of its edges. All problems are reported together, each with its path."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from perdure.agent_workflow.condition import Condition
from perdure.agent_workflow.definition import END, START, AgentConfig, Draft, EdgeDraft, NodeConfig, NodeDraft
from perdure.agent_workflow.documents.validate import Problem, at
from perdure.agent_workflow.execution.planner import cycle_through, lay_out
from perdure.agent_workflow.execution.values import INPUT, has_field, keys_needed, outputs_by_node, outputs_known
from perdure.agent_workflow.sessions import is_encrypted
from perdure.errors import did_you_mean
from perdure.graph.executor import is_async


def content_problems(draft: Draft) -> list[Problem]:
    """Problems of a definition that has the right form and whose import paths were resolved."""
    return [
        *node_problems(draft),
        *key_problems(draft),
        *edge_problems(draft),
        *link_problems(draft),
        *_settings_problems(draft),
    ]


def node_problems(draft: Draft) -> Iterator[Problem]:
    if not draft.nodes:
        yield "agents", "missing: a workflow needs a node"
    for node_id, node in draft.nodes.items():
        path = at("agents", node_id)
        if node_id in (START, END, INPUT):
            yield path, f"{START}, {END} and {INPUT} are reserved. Give the node another id"
        elif not re.fullmatch(r"[A-Za-z0-9_-]+", node_id):
            yield path, "expected an id of letters, digits, _ and -"
        yield from _who(node, path, draft)
        yield from _outputs(node, path)
        yield from _handoffs(node, path, draft)
        yield from _fallback(node_id, node, path, draft)
        yield from _approval(node_id, node, path)
        retry = node.config.retry
        if retry is not None and retry.max_delay is not None and retry.max_delay < retry.initial_delay:
            text = f"{retry.max_delay:g} s is shorter than initial_delay, {retry.initial_delay:g} s"
            yield f"{path}.retry.max_delay", text


def _who(node: NodeDraft, path: str, draft: Draft) -> Iterator[Problem]:
    """A node has an agent or a workflow, and only options of that kind."""
    config = node.config
    is_agent = node.agent is not None or config.agent is not None
    is_workflow = node.workflow is not None or config.workflow is not None
    if is_agent and is_workflow:
        yield path, "has an agent and a workflow: a node is one of them"
    elif not is_agent and not is_workflow:
        yield path, "missing: a node needs an agent, or a workflow"
    if isinstance(config.agent, AgentConfig) and config.agent.model is None and draft.settings.model is None:
        how = "name a model here, or one for the whole workflow (settings.model, with_model)"
        yield f"{path}.agent.model", f"missing: {how}"
    if is_workflow:
        for field in ("output_mode", "map", "instructions", "context", "tools"):
            if getattr(config, field) != getattr(NodeConfig(), field) or (field == "tools" and node.tools):
                yield f"{path}.{field}", "applies to agents, and this node is a workflow"


def _outputs(node: NodeDraft, path: str) -> Iterator[Problem]:
    mode, config, here = node.config.output_mode, node.config, f"{path}.output_types"
    count = max(len(node.types), len(config.output_types))
    if mode == "structured" and count != 1:
        yield here, f"expected one type, since output_mode is 'structured'; got {count}"
    elif mode == "union" and not count:
        yield here, "expected types, since output_mode is 'union'; got none"
    elif mode in ("string", "handoff") and count:
        yield here, f"are of structured and union outputs, and output_mode is {mode!r}"
    for name, times in Counter(kind.__name__ for kind in node.types).items():
        if mode == "union" and times > 1:
            yield here, f"{times} of them are called {name!r}, so that 'matched_type' cannot distinguish them"
    if mode == "handoff" and config.map is not None:
        yield f"{path}.map", "a node that hands off runs once, not for each item of a list"


def _handoffs(node: NodeDraft, path: str, draft: Draft) -> Iterator[Problem]:
    config, seen = node.config, set[str]()
    targets = [(f"{path}.handoffs[{index}].target", handoff.target) for index, handoff in enumerate(config.handoffs)]
    for here, target in targets:
        if target in seen:
            yield here, f"{target!r} is among them already"
        seen.add(target)
    if config.default_handoff is not None:
        targets.append((f"{path}.default_handoff", config.default_handoff))
    for here, target in targets:
        if target not in draft.nodes and target != END:
            yield here, unknown_node(target, [*draft.nodes, END])
    if targets and config.output_mode != "handoff":
        yield f"{path}.output_mode", f"expected 'handoff', since there are handoffs; got {config.output_mode!r}"
    elif config.output_mode == "handoff" and not targets:
        yield f"{path}.handoffs", "missing: output_mode is 'handoff', and no target is defined"


def _fallback(node_id: str, node: NodeDraft, path: str, draft: Draft) -> Iterator[Problem]:
    error, here = node.config.on_error, f"{path}.on_error.fallback"
    target = error.fallback
    if error.mode != "fallback":
        if target is not None:
            yield f"{path}.on_error.mode", f"expected 'fallback', since a fallback is named; got {error.mode!r}"
        return
    if target is None:
        yield here, "missing: the mode is 'fallback', so name a fallback node"
    elif target == node_id:
        yield here, "a node cannot be its own fallback"
    elif target not in draft.nodes:
        yield here, unknown_node(target, list(draft.nodes))
    else:
        yield from _stand_in(node_id, target, here, draft)


def _stand_in(node_id: str, target: str, here: str, draft: Draft) -> Iterator[Problem]:
    """A fallback runs only after a failure: no edge or handoff leads to it."""
    for index, edge in enumerate(draft.edges):
        if edge.config.target == target:
            yield here, f"{target!r} cannot be a fallback: an edge leads to it, {at('edges', index)}"
            return
    for link in draft.links():
        if link.target == target and link.kind in ("handoff", "default_handoff"):
            yield here, f"{target!r} cannot be a fallback: {link.source!r} hands off to it"
            return
    fallbacks = [(link.source, link.target) for link in draft.links() if link.kind == "fallback"]
    cycle = cycle_through(node_id, target, fallbacks)
    if len(cycle) > 2:
        yield here, f"is a cycle: {' -> '.join([node_id, *cycle[:-1]])}"


def _approval(node_id: str, node: NodeDraft, path: str) -> Iterator[Problem]:
    approval = node.config.approval
    if approval is not None and approval.timeout_behavior == "auto_approve" and not approval.timeout:
        yield f"{path}.approval.timeout", "missing: 'auto_approve' is what happens when it is over"
    yield from _predicate(node.needs_approval, f"{path}.approval.predicate")
    known = outputs_known(node, before_approval=True)
    if approval is not None and approval.when is not None and known:
        yield from _fields(approval.when, f"{path}.approval.when", node_id, known)


def edge_problems(draft: Draft) -> Iterator[Problem]:
    defaults: dict[str, int] = {}
    for index, edge in enumerate(draft.edges):
        path, config = at("edges", index), edge.config
        yield from _ends(edge, path, list(draft.nodes))
        before = next((other for other in range(index) if draft.edges[other] == edge), None)
        if before is not None:
            yield path, f"the same as {at('edges', before)}"
        elif config.is_default:
            first, source = defaults.setdefault(config.source, index), config.source
            if first != index:
                yield f"{path}.default", f"{source!r} has a default edge already: {at('edges', first)}"
            conditions = config.when, config.predicate, config.matched_type, edge.predicate
            if any(condition is not None for condition in conditions):
                problem = f"a default edge has no condition: it is taken if no other edge of {source!r} is"
                yield f"{path}.default", problem
        yield from _predicate(edge.predicate, f"{path}.predicate")
        if config.matched_type is not None:
            yield from _matched_type(config.source, config.matched_type, f"{path}.matched_type", draft)
        if config.when is not None:
            yield from _edge_fields(config.when, f"{path}.when", config.source, draft)


def _predicate(predicate: Any, path: str) -> Iterator[Problem]:
    if predicate is not None and is_async(predicate):
        problem = f"expected a plain function, {getattr(predicate, '__name__', predicate)!r} is async"
        yield path, f"{problem}: use an agent for work that takes time"


def _ends(edge: EdgeDraft, path: str, nodes: Sequence[str]) -> Iterator[Problem]:
    source, target = edge.config.source, edge.config.target
    if source == END:
        yield f"{path}.from", "END has no successors: it is the end of the execution"
    elif source != START and source not in nodes:
        yield f"{path}.from", unknown_node(source, [*nodes, START])
    if target == START:
        yield f"{path}.to", "START has no predecessors: it is the input of the execution"
    elif target != END and target not in nodes:
        yield f"{path}.to", unknown_node(target, [*nodes, END])
    elif target == END and source == START:
        yield path, "leads from START to END, past every node"


def unknown_node(name: str, known: Sequence[str]) -> str:
    return f"no node {name!r} exists{did_you_mean(name, known)}"


def _edge_fields(when: Condition, path: str, source: str, draft: Draft) -> Iterator[Problem]:
    """Fields that the outputs of the source and of its fallback do not have, if the outputs are known."""
    node = draft.nodes.get(source)
    fallback = None if node is None else draft.nodes.get(node.config.on_error.fallback or "")
    outputs = [outputs_known(speaker) for speaker in (node, fallback) if speaker is not None]
    known = dict.fromkeys(key for keys in outputs for key in keys or ())
    if known and None not in outputs:
        yield from _fields(when, path, source, list(known))


def _fields(when: Condition, path: str, source: str, known: Sequence[str]) -> Iterator[Problem]:
    if when.field is not None and not has_field(when.field, known):
        hint = did_you_mean(when.field, known)
        yield f"{path}.field", f"{source!r} has no output {when.field!r}{hint}. It has: {', '.join(known)}"
    for index, condition in enumerate(when.conditions):
        yield from _fields(condition, f"{path}.conditions[{index}]", source, known)


def _matched_type(source: str, wanted: str, path: str, draft: Draft) -> Iterator[Problem]:
    node = draft.nodes.get(source)
    if node is None:
        if source == START:
            yield path, "the input of the execution has no type: START has no union output"
        return
    if node.config.output_mode != "union" or node.config.map is not None:
        yield path, f"{source!r} has no union output, so that nothing is routed by its type"
        return
    names = [kind.__name__ for kind in node.types]
    if names and wanted not in names:
        hint = did_you_mean(wanted, names)
        yield path, f"{wanted!r} is not an output type of {source!r}{hint}. Its types: {', '.join(names)}"


def key_problems(draft: Draft) -> Iterator[Problem]:
    """A key must name an output of an earlier node or the execution's input: `input`, `input.topic`. In the first
    nodes, a key of the input needs no `input.` prefix, and its value is unknown here."""
    known = outputs_by_node(draft)
    entered = {link.target for link in draft.links() if link.source in draft.nodes and link.source != link.target}
    for node_id, node in draft.nodes.items():
        for option, key in keys_needed(node.config):
            problem = _key_problem(key, known, is_first=node_id not in entered)
            if problem is not None:
                yield f"{at('agents', node_id)}.{option}", problem


def _key_problem(key: str, known: Mapping[str, Collection[str] | None], *, is_first: bool) -> str | None:
    first, _, rest = key.partition(".")
    if first == INPUT:
        return None
    outputs = [name for names in known.values() for name in names or ()]
    if has_field(key, outputs):
        return None
    if first in known and rest:
        own = known[first]
        if own is None or has_field(rest, own):
            return None
        return f"{first!r} has no output {rest!r}{did_you_mean(rest, own)}. It has: {', '.join(own)}"
    if is_first or any(names is None for names in known.values()):
        return None
    paths = [f"{node}.{name}" for node, names in known.items() for name in names or ()]
    hint = did_you_mean(key, outputs) or did_you_mean(key, paths)
    return (
        f"no node outputs {key!r}{hint}. Outputs: {', '.join([*paths, INPUT])}; "
        f"a key of the execution's input is written {f'{INPUT}.{key}'!r}"
    )


def link_problems(draft: Draft) -> Iterator[Problem]:
    links = [link for link in draft.links() if link.source in draft.nodes and link.target in draft.nodes]
    pairs = list(dict.fromkeys((link.source, link.target) for link in links))
    _, back = lay_out(list(draft.nodes), pairs)
    fallbacks = {(link.source, link.target) for link in links if link.kind == "fallback"}
    loops = [cycle_through(*pairs[index], pairs) for index in sorted(back)]
    # Checks of nodes report cycles of fallbacks.
    cycles = [" -> ".join(loop) for loop in loops if not fallbacks.issuperset(pairwise(loop))]
    yield from _unreachable_nodes(draft, pairs)
    if cycles and draft.settings.max_iterations is None:
        what = f"a cycle, {cycles[0]}" if len(cycles) == 1 else f"cycles, {' and '.join(cycles)}"
        yield "settings.max_iterations", f"missing: the workflow has {what}. Set the maximum of passes"


def _unreachable_nodes(draft: Draft, pairs: list[tuple[str, str]]) -> Iterator[Problem]:
    """With edges from START, every node must be reachable from START."""
    starts = [edge.config.target for edge in draft.edges if edge.config.source == START]
    if not starts:
        return
    entered = {target for source, target in pairs if source != target}
    reached = [node for node in draft.nodes if node in starts or node not in entered]
    for node in reached:  # grows while it is read
        reached += dict.fromkeys(target for source, target in pairs if source == node and target not in reached)
    for node in draft.nodes:
        if node not in reached:
            yield at("agents", node), "not reachable from START. Add an edge to it, or remove it"


def _settings_problems(draft: Draft) -> Iterator[Problem]:
    settings = draft.settings
    if settings.checkpointing and draft.store is None:
        how = "the workflow has no workflow store: add one, such as with_sqlite_workflow_store(path)"
        yield "settings.checkpointing", how
    if settings.conversation.mode != "none" and draft.session_store is None:
        how = "the workflow has no session store: add one, such as with_json_session_store(folder)"
        yield "settings.conversation.mode", f"{settings.conversation.mode!r} stores messages, and {how}"
    if draft.store is not None and is_encrypted(draft.store):
        yield from _plain_conversations(draft, "")


def _plain_conversations(draft: Draft, within: str) -> Iterator[Problem]:
    """Messages that are encrypted in checkpoints must not be plain text in a session store. The check includes
    workflows that are nodes: they run in the same execution."""
    mode = draft.settings.conversation.mode
    if mode != "none" and getattr(draft.session_store, "keeps_plain_text", False):
        how = "give the session store a key, too, such as with_json_session_store(folder, encryption=AesGcm(key))"
        problem = f"{mode!r} stores messages as plain text, and the workflow store is encrypted: {how}"
        yield f"{within}settings.conversation.mode", problem
    for node_id, node in draft.nodes.items():
        if node.workflow is not None:
            yield from _plain_conversations(node.workflow._draft, f"{within}agents.{node_id}.workflow.")
