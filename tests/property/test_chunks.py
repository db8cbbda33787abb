"""Checkpoints cut into chunks: whatever changes from one to the next, each comes back and shares what it can."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st
from tests.property.changing_trees import ChangingTree
from tests.property.packed_threads import PackedThread

SEEDS = st.integers(0, 2**48)


@given(seed=SEEDS, steps=st.integers(5, 30))
def test_every_checkpoint_comes_back_and_lists_new_and_dropped_chunks(seed: int, steps: int) -> None:
    thread, changing = PackedThread(), ChangingTree(Random(seed))
    for _ in range(steps):
        changing.change()
        thread.pack(changing.tree)


@given(seed=SEEDS, steps=st.integers(3, 12))
def test_events_restarts_and_other_graphs_in_between_disturb_nothing(seed: int, steps: int) -> None:
    random = Random(seed)
    thread, changing = PackedThread(), ChangingTree(random)
    logs = []
    graph = b'{"graph_signature_hash":"h"}'
    for _ in range(steps):
        changing.change()
        if random.random() < 0.2:
            thread.restart()
        if random.random() < 0.1:
            graph = b'{"graph_signature_hash":"%d"}' % random.randrange(3)
        thread.pack(changing.tree, graph)
        if random.random() < 0.7:
            state = changing.tree["state"]
            events = [["output", "writer", {"data": random.choice((state, changing.value(1)))}] for _ in range(3)]
            logs.append((thread.pack_events(events), events))
    for body, events in logs:
        assert thread.read(body)[0] == events
