"""A checkpoint as a tree, and back to its fields: the one place that knows the stored form.

The tree holds each payload of messages once, in `payloads`, even if several deliveries share it. It has no empty parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from perdure.checkpoints.encoding.level import decode_dict, decode_level, encode_level
from perdure.checkpoints.level import Counters
from perdure.codec import Codec, DeclaredTypes, Tree
from perdure.codecs.json_codec import JsonCodec
from perdure.codecs.types import declared_types, remember
from perdure.codecs.walk import from_bytes, to_bytes
from perdure.errors import UnreadableValue, UnsavableValue, WorkflowCheckpointException
from perdure.events import WorkflowEvent
from perdure.records import CheckpointInfo

if TYPE_CHECKING:
    from perdure.checkpoints.checkpoint import WorkflowCheckpoint

FORMAT_VERSION = "1.0"

INFO_FIELDS = tuple(name for name in CheckpointInfo.__struct_fields__ if name != "is_pinned")
"""Fields of a checkpoint that stores keep beside the payload."""

GRAPH_PARTS = ("version", "graph_signature_hash", "graph_signature", "migrations", "renamed_types")
"""Parts of a whole tree that a chunked tree has in its `graph`."""

_VALUE_PARTS = ("metadata", "run_kwargs")
"""Dicts of users' values."""


def declare_types(
    annotations: Iterable[object], executor_code: Iterable[type], allowed: Iterable[type | str]
) -> DeclaredTypes:
    """The types of a workflow. The process registers them, so that a storage without the workflow can decode them."""
    declared = declared_types(annotations, executor_code, allowed)
    remember(declared)
    return declared


def codec_for(declared: DeclaredTypes) -> Codec:
    return JsonCodec(declared)


def tool_codec() -> Codec:
    """For work without a workflow: undeclared types are decoded as Opaque and encoded back unchanged."""
    return JsonCodec(lenient=True)


def encode_checkpoint(checkpoint: WorkflowCheckpoint, codec: Codec) -> Tree:
    """Raises UnsavableValue with the path of the value that cannot be stored."""
    tree = {field: getattr(checkpoint, field) for field in INFO_FIELDS}
    tree.update(encode_body(checkpoint, codec))
    if checkpoint.state:
        tree["state"] = codec.encode(checkpoint.state, "state")
    tree["version"] = checkpoint.version
    tree["graph_signature_hash"] = checkpoint.graph_signature_hash
    if checkpoint.graph_signature:
        tree["graph_signature"] = checkpoint.graph_signature
    tree.update(_migrations_of(checkpoint))
    return tree


def encode_body(checkpoint: WorkflowCheckpoint, codec: Codec) -> dict[str, Tree]:
    """The parts that are not in a `CheckpointInfo`, without the graph's signature and the `state`."""
    counters = checkpoint.counters
    tree: dict[str, Tree] = {"counters": [counters.since_input, counters.next_delivery_id]}
    if counters.epoch:
        tree["counters"].append(counters.epoch)
    encode_level(checkpoint, tree, codec)
    if checkpoint.metadata:
        tree["metadata"] = codec.encode(checkpoint.metadata, "metadata")
    if checkpoint.run_kwargs:
        tree["run_kwargs"] = _encode_arguments(checkpoint.run_kwargs, codec)
    if checkpoint.outputs:
        tree["outputs"] = [
            [event.type, event.executor_id, codec.encode(event.data, f"outputs[{index}]")]
            for index, event in enumerate(checkpoint.outputs)
        ]
    return tree


def _encode_arguments(arguments: dict[str, Any], codec: Codec) -> Tree:
    try:
        return codec.encode(arguments, "run_kwargs")
    except UnsavableValue as error:
        remedy = "Clients and keys need not be stored: pass Secret(value), and again when the thread is resumed."
        raise UnsavableValue(error.path, error.reason, remedy) from error


def encode_graph(checkpoint: WorkflowCheckpoint) -> bytes:
    """The part that most checkpoints of a thread have in common."""
    tree: dict[str, Tree] = {
        "version": checkpoint.version,
        "graph_signature_hash": checkpoint.graph_signature_hash,
    }
    if checkpoint.graph_signature:
        tree["graph_signature"] = checkpoint.graph_signature
    tree.update(_migrations_of(checkpoint))
    return to_bytes(tree)


def _migrations_of(checkpoint: WorkflowCheckpoint) -> dict[str, Tree]:
    parts = {
        "migrations": list(checkpoint.migrations),
        "renamed_types": [list(row) for row in checkpoint.renamed_types],
    }
    return {part: rows for part, rows in parts.items() if rows}


def decode_fields(tree: Tree, codec: Codec) -> dict[str, Any]:
    """The fields of the checkpoint in a tree. Raises WorkflowCheckpointException (UnreadableValue names the part) for
    anything that is not a checkpoint."""
    if not isinstance(tree, Mapping) or "workflow_name" not in tree or "version" not in tree:
        raise UnreadableValue("checkpoint", "it is not a stored checkpoint (no workflow_name, no version)")
    tree = dict(tree)
    version = tree["version"]
    if version != FORMAT_VERSION:
        raise WorkflowCheckpointException(
            f"Checkpoint {tree.get('checkpoint_id')!r} has format version {version!r}; this perdure reads "
            f"{FORMAT_VERSION!r}. A newer perdure wrote it: upgrade perdure to read it."
        )
    try:
        stored = msgspec.convert(tree, _StoredForm)
        outputs = []
        for index, (kind, executor_id, data) in enumerate(stored.outputs):
            value = codec.decode(data, f"outputs[{index}]")
            outputs.append(WorkflowEvent(kind, value, executor_id=executor_id, replayed=True))
        fields = {**msgspec.structs.asdict(stored), **decode_level(tree, codec), "outputs": outputs}
        for part in _VALUE_PARTS:
            if part in tree:
                fields[part] = decode_dict(tree[part], part, codec)
        # Checkpoints that are read together share the chunk with the signature.
        signature = from_bytes(to_bytes(stored.graph_signature), "graph_signature")
        return {**fields, "counters": Counters(*stored.counters), "graph_signature": signature}
    except WorkflowCheckpointException:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableValue(
            f"checkpoint {tree.get('checkpoint_id')!r}", f"its parts do not fit together ({error!r})"
        ) from error


class _StoredForm(msgspec.Struct):
    """The shape of a stored checkpoint. msgspec checks it before the codec decodes a value."""

    workflow_name: str
    graph_signature_hash: str
    checkpoint_id: str
    previous_checkpoint_id: str | None
    timestamp: str
    iteration_count: int
    thread_id: str
    run_id: str | None
    number: int
    status: str
    counters: Annotated[list[int], msgspec.Meta(min_length=2, max_length=3)]
    outputs: list[tuple[str, str | None, Any]] = []
    graph_signature: dict[str, Any] = {}
    migrations: tuple[str, ...] = ()
    renamed_types: tuple[tuple[str, str, str], ...] = ()
