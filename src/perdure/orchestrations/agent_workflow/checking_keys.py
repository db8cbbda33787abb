"""Is there what nodes refer to: by `input_key`, `input_template` and `map.over`?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perdure.errors import did_you_mean
from perdure.orchestrations.agent_workflow.checking_ways import ways_in
from perdure.orchestrations.agent_workflow.definition import NodeConfig
from perdure.orchestrations.agent_workflow.drafting import Draft
from perdure.orchestrations.agent_workflow.inputs import INPUT, keys_in
from perdure.orchestrations.agent_workflow.known_outputs import has_field, outputs_known
from perdure.orchestrations.agent_workflow.places import Problem, at

_OF_AN_ITEM = ("item", "index")


def key_problems(draft: Draft) -> Iterator[Problem]:
    """A key must be of a node before, or of the execution's input: `input`, `input.topic`. Where nothing came before,
    a key of the input needs no `input.` in front, and what it will hold is not known."""
    known = {node_id: outputs_known(node) for node_id, node in draft.nodes.items()}
    led_to = {target for source, target in ways_in(draft) if source != target}
    for node_id, node in draft.nodes.items():
        for place, key in _keys_of(node.config, at("agents", node_id)):
            problem = _problem(key, known, is_first=node_id not in led_to)
            if problem is not None:
                yield place, problem


def _keys_of(config: NodeConfig, place: str) -> Iterator[tuple[str, str]]:
    if config.map is not None:
        yield f"{place}.map.over", config.map.over
    if config.input_template is not None:
        for key in dict.fromkeys(keys_in(config.input_template)):
            if config.map is None or not has_field(key, _OF_AN_ITEM):
                yield f"{place}.input_template", key
    elif config.input_key is not None and config.map is None:
        yield f"{place}.input_key", config.input_key


def _problem(key: str, known: Mapping[str, list[str] | None], *, is_first: bool) -> str | None:
    first, _, rest = key.partition(".")
    if first == INPUT:
        return None
    outputs = [name for names in known.values() for name in names or ()]
    if has_field(key, outputs):
        return None
    if first in known and rest:
        given = known[first]
        if given is None or has_field(rest, given):
            return None
        return f"{first!r} has no output {rest!r}{did_you_mean(rest, given)}. It has: {', '.join(given)}"
    if is_first or any(names is None for names in known.values()):
        return None
    there = [f"{node}.{name}" for node, names in known.items() for name in names or ()]
    hint = did_you_mean(key, outputs) or did_you_mean(key, there)
    return (
        f"no node gives {key!r}{hint}. There is: {', '.join([*there, INPUT])}; "
        f"a key of the execution's input is written {f'{INPUT}.{key}'!r}"
    )
