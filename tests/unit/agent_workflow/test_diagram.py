"""The Mermaid flowchart of a workflow."""

from __future__ import annotations

import msgspec
from tests.unit.agent_workflow.making import drafted, stub


class Invoice(msgspec.Struct):
    total: int


class Complaint(msgspec.Struct):
    why: str


def test_nodes_and_edges_are_drawn() -> None:
    inner = drafted("inner").add_agent("x", stub("x")).build()
    builder = drafted().with_max_iterations(3)
    builder.add_router_agent("route", stub("r")).with_handoff("bill", "Money").with_default_handoff("care")
    builder.add_agent("bill", stub("b"), lambda node: node.requires_approval("Pay?").on_error_fallback("spare"))
    builder.add_agent("care", stub("c"), lambda node: node.map_over("input.items")).add_agent("spare", stub("s"))
    builder.add_workflow("sub", inner).add_agent("late", stub("l"))
    edges = builder.from_("bill").to("sub").when_greater_than("total", 3).from_("bill").to("late").as_default()
    edges = edges.from_("care").to("late").with_delay(30).from_("sub").to("route").when(lambda outputs: True)

    assert edges.build().to_diagram() == (
        "flowchart TD\n"
        '  START(["START"])\n'
        '  n_END(["END"])\n'
        '  route{"route (router)"}\n'
        '  bill["bill (approval#58; Pay?)"]\n'
        '  care[["care (for each of input.items)"]]\n'
        '  spare["spare"]\n'
        '  sub[/"sub (workflow inner)"/]\n'
        '  late["late"]\n'
        "  START --> route\n"
        '  bill -->|"total greater than 3"| sub\n'
        '  bill -.->|"default"| late\n'
        '  care -->|"after 30 s"| late\n'
        '  sub -->|"#60;lambda#62;"| route\n'
        '  route ==>|"Money"| bill\n'
        '  route -.->|"default"| care\n'
        '  bill -.->|"bill failed"| spare\n'
        '  spare -.->|"in place of bill"| sub\n'
        '  spare -.->|"in place of bill"| late\n'
        "  sub --> n_END\n"
        "  late --> n_END\n"
    )


def test_edges_of_start_and_end_are_drawn_as_defined() -> None:
    builder = drafted().add_agent("a", stub("a")).add_agent("b", stub("b"))
    edges = builder.from_("START").to("a").when_equals("kind", "x").from_("START").to("b").as_default()
    drawn = edges.from_("a").to("END").build().to_diagram()

    assert [line.strip() for line in drawn.splitlines() if "-->" in line or "-.->" in line] == [
        "START -->|\"kind equals 'x'\"| a",
        'START -.->|"default"| b',
        "a --> n_END",
        "b --> n_END",
    ]


def test_mermaid_keywords_and_special_characters_are_escaped() -> None:
    builder = drafted().add_agent("end", stub("a"), lambda node: node.requires_approval('"]; click a "x'))
    builder.add_agent("my-node", stub("b")).add_agent("my_node", stub("c"))
    drawn = builder.from_("end").to("my-node").when_equals("x", '|"-->').build().to_diagram()

    assert '  n_end["end (approval#58; #34;#93;#59; click a #34;x)"]' in drawn
    assert '  my_node["my-node"]' in drawn
    assert '  my_node_2["my_node"]' in drawn
    assert "  n_end -->|\"x equals '#124;#34;--#62;'\"| my_node" in drawn


def test_edges_that_route_by_type_name_the_types() -> None:
    builder = drafted().add_agent("a", stub({"total": 1}), lambda node: node.union_output(Invoice, Complaint))
    builder.add_agent("b", stub("b")).add_agent("c", stub("c"))
    drawn = builder.from_("a").route_by_type().when(Invoice, "b").default("c").build().to_diagram()

    assert '  a -->|"is Invoice"| b' in drawn
    assert '  a -.->|"default"| c' in drawn
