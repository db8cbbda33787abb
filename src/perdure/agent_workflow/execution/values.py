"""The input of a node's agent, and its answer as outputs: plain data, equal before and after a restart.

Also the outputs that a node will have, as far as they are known before it runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.agent_workflow.condition import MISSING, field_in
from perdure.agent_workflow.definition import ANSWER, Draft, NodeConfig, NodeDraft
from perdure.agent_workflow.state import NodeTask, to_plain
from perdure.agents.conversation.message import Message
from perdure.agents.conversation.response import AgentResponse, value_in
from perdure.agents.tools import Tool
from perdure.errors import did_you_mean

INPUT = "input"
"""The key of the execution's input."""
USUAL = ("question", "input", "message", "query", "prompt")
"""Output keys that name the input of the next node."""
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


def as_text(value: Any) -> str:
    """A text unchanged, any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class Values:
    """All values that a node can refer to: outputs as `key` or `node.key`, and the execution's input."""

    def __init__(self, task: NodeTask, known_outputs: Mapping[str, Collection[str] | None]) -> None:
        self._known_outputs = known_outputs
        """The output keys of each node; None: unknown before it runs."""
        self._waiting = task.waiting
        self._input = task.input
        self._input_keys: Mapping[str, Any] = task.input if isinstance(task.input, Mapping) else {}
        self._near = {source: task.outputs[source] for source in task.sources if source in task.outputs}
        self._outputs = task.outputs

    def find(self, key: str, path: str) -> Any:
        """Nodes that led here come first. Raises ValueError for a key without a value."""
        value = self._look_up(key)
        if value is not MISSING:
            return value
        keys = [f"{node}.{name}" for node, outputs in self._outputs.items() for name in outputs]
        keys += [*self._input_keys, INPUT]
        raise ValueError(f"{path}: no earlier node returned {key!r}{did_you_mean(key, keys)}. Keys: {', '.join(keys)}.")

    def text(self, key: str, path: str) -> str:
        """The value for a template; empty for an output of a node that was skipped, failed or has not run yet."""
        value = self._look_up(key)
        may_come = self._may_come(key, self._known_outputs)
        return "" if value is MISSING and may_come else as_text(self.find(key, path))

    def first(self, key: str, path: str) -> Any:
        """The value for an input key. In the first pass of a loop, an output of a later node is the usual input."""
        later = {node: self._known_outputs[node] for node in self._waiting if node in self._known_outputs}
        is_to_come = self._look_up(key) is MISSING and self._may_come(key, later)
        return self.usual() if is_to_come else self.find(key, path)

    def _may_come(self, key: str, known_outputs: Mapping[str, Collection[str] | None]) -> bool:
        head, _, rest = key.partition(".")
        own = known_outputs.get(head) if rest else None
        if head in known_outputs and rest and (own is None or rest.partition(".")[0] in own):
            return True
        return any(keys is None or head in keys for node, keys in known_outputs.items() if node not in self._outputs)

    def _look_up(self, key: str) -> Any:
        by_node = {node: outputs for node, outputs in self._outputs.items() if outputs}  # as node.key
        inputs = self._input_keys, {INPUT: self._input}
        places: tuple[Mapping[str, Any], ...] = (*self._near.values(), by_node, *self._outputs.values(), *inputs)
        values = (field_in(place, key) for place in places)
        return next((value for value in values if value is not MISSING), MISSING)

    def usual(self) -> Any:
        """The input without a key or a template: a value with a usual name, from the nodes that led here or from the
        input, else the whole input."""
        for outputs in (*self._near.values(), self._input_keys):
            for key in USUAL:
                if key in outputs:
                    return outputs[key]
        if self._input not in ("", None):
            return self._input
        texts = (value for outputs in self._near.values() for value in outputs.values() if isinstance(value, str))
        return next(texts, "")


def input_of(node: str, config: NodeConfig, values: Values, more: Mapping[str, Any] | None = None) -> str:
    """`more`: values of this input only, such as the item of a map."""
    path = f"agents.{node}"
    if config.input_template is not None:

        def fill(match: re.Match[str]) -> str:
            key = match[1]
            value = field_in(more or {}, key)
            return values.text(key, f"{path}.input_template") if value is MISSING else as_text(value)

        return _PLACEHOLDER.sub(fill, config.input_template)
    if more is not None:
        return as_text(next(iter(more.values())))
    if config.input_key is not None:
        return as_text(values.first(config.input_key, f"{path}.input_key"))
    return as_text(values.usual())


def messages_for(config: NodeConfig, text: str) -> list[Message]:
    """The messages of a turn: instructions and context of the node, and its input."""
    notes = [config.instructions] if config.instructions else []
    notes += [f"{name}: {as_text(value)}" for name, value in config.context.items()]
    before = [Message("system", "\n\n".join(notes))] if notes else []
    return [*before, Message("user", text)]


MATCHED_TYPE = "matched_type"
"""The output that names the type of a union output."""
HANDOFF = "handoff"
"""The output that names the target of a handoff."""


def outputs_of(node: str, config: NodeConfig, response: AgentResponse, types: Sequence[type]) -> dict[str, Any]:
    """Raises ValueError if the answer does not fit the node's output mode."""
    if config.output_mode == "structured":
        return _spread(config, to_plain(value_in(response, types[0])))
    if config.output_mode == "union":
        kind, value = _match_union(node, response, types)
        return {**_spread(config, to_plain(value)), MATCHED_TYPE: kind.__name__}
    if config.output_mode == "handoff":
        return {HANDOFF: handoff_in(node, config, response), config.output_key or ANSWER: response.text}
    return {config.output_key or ANSWER: response.text}


def _spread(config: NodeConfig, value: Any) -> dict[str, Any]:
    """Each field becomes an output; with an output key the whole value is one output."""
    if config.output_key is not None or not isinstance(value, Mapping):
        return {config.output_key or ANSWER: value}
    return dict(value)


def _match_union(node: str, response: AgentResponse, types: Sequence[type]) -> tuple[type, Any]:
    for kind in types:
        if isinstance(response.value, kind):
            return kind, response.value
    problems = []
    for kind in sorted(types, key=lambda kind: kind is str):  # str last: any answer is a text
        if kind is str:
            return kind, response.text
        try:
            return kind, value_in(response, kind)
        except ValueError as error:
            problems.append(str(error))
    names = ", ".join(kind.__name__ for kind in types)
    raise ValueError(f"agents.{node}: the answer is none of {names}. {problems[0]}")


def handoff_tool(target: str, description: str | None) -> Tool:
    """The tool by which a router chooses this target."""

    def hand_off() -> str:
        return f"Handed off to {target}."

    name = handoff_name(target)
    hand_off.__name__ = hand_off.__qualname__ = name
    return Tool(hand_off, name=name, description=description or f"Hand off to {target}.", ends_turn=True)


def handoff_name(target: str) -> str:
    return f"handoff_to_{target}"


def handoff_in(node: str, config: NodeConfig, response: AgentResponse) -> str:
    """The target that the router chose: by a tool call, by an answer that is only its name, or else the default."""
    targets = {handoff_name(handoff.target): handoff.target for handoff in config.handoffs}
    called = [call.name for message in response.messages for call in message.of_type("function_call")]
    chosen = [targets[name] for name in called if name in targets]
    if chosen:
        return chosen[-1]
    answer = response.text.strip().strip(".\"'`")
    if answer in targets.values():
        return answer
    if config.default_handoff is not None:
        return config.default_handoff
    raise ValueError(
        f"agents.{node}: the router did not hand off, and has no default handoff. It may hand off to "
        f"{', '.join(targets.values())}. Its answer: {response.text[:200]!r}"
    )


def outputs_known(node: NodeDraft, *, before_approval: bool = False) -> list[str] | None:
    """None: any output is possible, as after an approval, which may add data to the outputs."""
    config = node.config
    answer = config.output_key or ANSWER
    if config.approval is not None and not before_approval:
        return None
    if config.workflow is not None or node.workflow is not None:
        return [answer, "outputs"]
    if config.map is not None or config.output_mode == "string":
        return [answer]
    if config.output_mode == "handoff":
        return [HANDOFF, answer]
    more = [MATCHED_TYPE] if config.output_mode == "union" else []
    if config.output_key is not None:
        return [answer, *more]
    keys: dict[str, None] = {}
    for kind in node.types:
        if (own := _keys_of_type(kind)) is None:
            return None
        keys |= dict.fromkeys(own)
    return [*keys | dict.fromkeys(more)] if node.types else None


def _keys_of_type(kind: Any) -> list[str] | None:
    """The keys of a value of this type as plain data; None if they are unknown."""
    if isinstance(getattr(kind, "model_fields", None), Mapping):
        has_more = getattr(kind, "__pydantic_root_model__", False) or kind.model_config.get("extra") == "allow"
        return None if has_more else [*kind.model_fields, *getattr(kind, "model_computed_fields", ())]
    try:
        info: Any = msgspec.inspect.type_info(kind)
        fields = [field.encode_name for field in info.fields]
    except Exception:  # noqa: BLE001  # it has no fields; or it is a foreign type, for which msgspec may raise anything
        return None
    if isinstance(info, msgspec.inspect.NamedTupleType) or getattr(info, "array_like", False):
        return [ANSWER]  # a list has no keys
    tag = getattr(info, "tag_field", None)
    return fields if tag is None else [tag, *fields]


def has_field(path: str, outputs: Iterable[str]) -> bool:
    """Whether a path such as `review.score` may exist: the fields inside an output are unknown."""
    names = set(outputs)
    return path in names or path.split(".", maxsplit=1)[0] in names


def outputs_by_node(draft: Draft) -> dict[str, Collection[str] | None]:
    """The output keys of each node; None: unknown before it runs."""
    return {node_id: outputs_known(node) for node_id, node in draft.nodes.items()}


def needs_of(draft: Draft) -> dict[str, Collection[str]]:
    """For each node, the nodes whose outputs it may refer to, beside those that lead to it."""
    known = outputs_by_node(draft)
    return {
        node_id: list(known)  # a function may use all outputs
        if node.needs_approval is not None
        else {name for _, key in keys_needed(node.config) for name in _named_by(key, known)}
        for node_id, node in draft.nodes.items()
    }


def keys_needed(config: NodeConfig) -> Iterator[tuple[str, str]]:
    """The keys that the input of the node's agent refers to, each after the option that names it."""
    if config.map is not None:
        yield "map.over", config.map.over
    if config.input_template is not None:
        for key in dict.fromkeys(_PLACEHOLDER.findall(config.input_template)):
            if config.map is None or not has_field(key, ("item", "index")):
                yield "input_template", key
    elif config.input_key is not None and config.map is None:
        yield "input_key", config.input_key


def _named_by(key: str, known: dict[str, Collection[str] | None]) -> Iterator[str]:
    head = key.partition(".")[0]
    if head == INPUT:
        return
    for node, keys in known.items():
        if node == head or keys is None or has_field(key, keys):
            yield node
