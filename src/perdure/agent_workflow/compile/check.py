"""Checks of a whole workflow. All problems are reported together, each with its path."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

from perdure.agent_workflow.compile.node_checks import edge_problems, node_problems
from perdure.agent_workflow.compile.outputs import has_field, outputs_by_node
from perdure.agent_workflow.conversations.store import is_encrypted
from perdure.agent_workflow.definition.config import START, NodeConfig
from perdure.agent_workflow.definition.draft import Draft
from perdure.agent_workflow.documents.convert import tree_of
from perdure.agent_workflow.documents.validate import Problem, at, problems_in
from perdure.agent_workflow.execution.edge_graph import cycle_through, lay_out
from perdure.agent_workflow.execution.values import INPUT, keys_in
from perdure.errors import did_you_mean

_KEYS_OF_ITEM = ("item", "index")


def key_problems(draft: Draft) -> Iterator[Problem]:
    """A key must name an output of an earlier node or the execution's input: `input`, `input.topic`. In the first
    nodes, a key of the input needs no `input.` prefix, and its value is unknown here."""
    known = outputs_by_node(draft)
    entered = {target for source, target in links_of(draft) if source != target}
    for node_id, node in draft.nodes.items():
        for path, key in _keys_of(node.config, at("agents", node_id)):
            problem = _key_problem(key, known, is_first=node_id not in entered)
            if problem is not None:
                yield path, problem


def _keys_of(config: NodeConfig, path: str) -> Iterator[tuple[str, str]]:
    if config.map is not None:
        yield f"{path}.map.over", config.map.over
    if config.input_template is not None:
        for key in dict.fromkeys(keys_in(config.input_template)):
            if config.map is None or not has_field(key, _KEYS_OF_ITEM):
                yield f"{path}.input_template", key
    elif config.input_key is not None and config.map is None:
        yield f"{path}.input_key", config.input_key


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
        f"no node gives {key!r}{hint}. Outputs: {', '.join([*paths, INPUT])}; "
        f"a key of the execution's input is written {f'{INPUT}.{key}'!r}"
    )


def links_of(draft: Draft) -> list[tuple[str, str]]:
    """Every link from a node to a node: edges, handoffs and fallbacks."""
    nodes = draft.nodes
    pairs = [(edge.config.source, edge.config.target) for edge in draft.edges]
    for node_id, node in nodes.items():
        config = node.config
        targets = (*(handoff.target for handoff in config.handoffs), config.default_handoff)
        pairs += [(node_id, target) for target in targets if target]
    pairs += _fallbacks_in(draft)
    return [(source, target) for source, target in dict.fromkeys(pairs) if source in nodes and target in nodes]


def _fallbacks_in(draft: Draft) -> list[tuple[str, str]]:
    errors = {node_id: node.config.on_error for node_id, node in draft.nodes.items()}
    return [(name, error.fallback) for name, error in errors.items() if error.mode == "fallback" and error.fallback]


def link_problems(draft: Draft) -> Iterator[Problem]:
    pairs = links_of(draft)
    layout = lay_out(list(draft.nodes), pairs)
    back = [pairs[index] for index in sorted(layout.back)]
    fallbacks = set(_fallbacks_in(draft))
    loops = [cycle_through(*pair, pairs) for pair in back]
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
    reached = {node for node in draft.nodes if node in starts or node not in entered}
    left = list(reached)
    for node in left:
        new = dict.fromkeys(target for source, target in pairs if source == node and target not in reached)
        reached.update(new)
        left += new
    for node in draft.nodes:
        if node not in reached:
            yield at("agents", node), "not reachable from START. Add an edge to it, or remove it"


def form_problems(draft: Draft) -> list[Problem]:
    """Problems of the form of a definition: unknown keys, wrong types, values out of range."""
    return problems_in(tree_of(draft.to_config()), is_document=False)


def content_problems(draft: Draft) -> list[Problem]:
    """Problems of a definition that has the right form and whose import paths were resolved."""
    return [
        *node_problems(draft),
        *key_problems(draft),
        *edge_problems(draft),
        *link_problems(draft),
        *_settings_problems(draft),
    ]


def _settings_problems(draft: Draft) -> Iterator[Problem]:
    settings = draft.settings
    if settings.checkpointing and draft.store is None:
        how = "there is no workflow store: add one, such as with_sqlite_workflow_store(path)"
        yield "settings.checkpointing", how
    if settings.conversation.mode != "none" and draft.session_store is None:
        how = "there is no session store: add one, such as with_json_session_store(folder)"
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
