"""A workflow is written down with what only Python has by its import path, or refused with the place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent_workflow import document_parts as parts
from tests.unit.agent_workflow.document_parts import HERE, agent, document

from perdure.agent_workflow import condition
from perdure.agent_workflow.builder.node import AgentNodeOptions
from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agent_workflow.definition import AgentConfig, NodeConfig, WorkflowConfig
from perdure.agent_workflow.documents.convert import export_draft, read_draft
from perdure.agent_workflow.instance import AgentWorkflowInstance
from perdure.agents.tools import Tool
from perdure.errors import InvalidDefinition
from perdure.testing import ScriptedAgent

local = ScriptedAgent("local", ["said"])


def started() -> AgentWorkflow:
    return AgentWorkflow.create().with_name("w")


def refused(workflow: AgentWorkflowInstance) -> list[str]:
    with pytest.raises(InvalidDefinition) as error:
        workflow.export_config()
    return str(error.value).splitlines()


def again(workflow: AgentWorkflowInstance, format: str, folder: Path) -> AgentWorkflowInstance:
    """As another process has it: written to a file, and read."""
    path = folder / f"w.{format}"
    path.write_text(workflow.export_config(format), encoding="utf-8")
    return AgentWorkflow.from_config(path).build()


def with_tools(node: AgentNodeOptions) -> AgentNodeOptions:
    return node.with_tools(parts.search, parts.pay)


def whole() -> AgentWorkflowInstance:
    """With all that only Python has."""
    inside = started().with_name("inside").add_agent("say", parts.writer).build()
    return (
        started()
        .with_version("2.0")
        .with_description("Everything.\nIn lines.")
        .with_max_iterations(3)
        .add_agent("judge", parts.judge, lambda node: with_tools(node.structured_output(parts.Verdict)))
        .add_agent("clerk", parts.clerk, lambda node: node.union_output(parts.Invoice, parts.Complaint))
        .add_agent("write", parts.writer, lambda node: node.requires_approval("Risky?", when=parts.is_risky))
        .add_agent("edit", agent("editor"), lambda node: node.with_input_key("write.answer").with_context("x", (1, 2)))
        .add_workflow("sub", inside, lambda node: node.with_input_key("edit.answer"))
        .from_("judge").to("write").when(parts.is_short).when(condition.greater_than("score", 5))
        .from_("judge").to("judge").when_equals("advice", None)
        .from_("clerk").route_by_type().when(parts.Complaint, "write").default("edit")
        .from_("write").to("edit").with_delay(0.001)
        .from_("edit").to("sub")
        .build()
    )  # fmt: skip


def test_things_of_python_are_written_by_their_import_path() -> None:
    tree = json.loads(whole().export_config("json"))
    agents = tree["agents"]
    assert tree["format"] == "1"
    assert agents["judge"]["agent"] == f"{HERE}:judge"
    assert agents["judge"]["output_types"] == [f"{HERE}:Verdict"]
    assert agents["judge"]["tools"] == [f"{HERE}:search", f"{HERE}:pay"]
    assert agents["clerk"]["output_types"] == [f"{HERE}:Invoice", f"{HERE}:Complaint"]
    assert agents["write"]["approval"] == {"message": "Risky?", "predicate": f"{HERE}:is_risky"}
    assert agents["edit"]["agent"] == f"{HERE}:editor"
    assert agents["sub"]["workflow"] == {
        "format": "1",
        "name": "inside",
        "agents": {"say": {"agent": f"{HERE}:writer"}},
    }
    assert tree["edges"][0]["predicate"] == f"{HERE}:is_short"


@pytest.mark.parametrize("format", ["json", "yaml"])
async def test_exported_workflow_reads_back_equal_and_behaves_equally(format: str, tmp_path: Path) -> None:
    workflow = whole()
    read = again(workflow, format, tmp_path)
    assert read.to_config() == workflow.to_config()
    assert read.export_config(format) == workflow.export_config(format)
    first, second = await workflow.run("tides"), await read.run("tides")
    assert first.success
    assert first.outputs["sub.answer"] == "<[<tides>]>"
    assert (second.outputs, second.final_answer) == (first.outputs, first.final_answer)


def test_the_short_names_give_the_same() -> None:
    workflow = whole()
    assert workflow.export_config() == workflow.export_config_json() == workflow.export_config("json")
    assert workflow.export_config_yaml() == workflow.export_config("yaml")
    with pytest.raises(ValueError, match=r"^export_config expects 'json' or 'yaml', got 'toml'\.$"):
        workflow.export_config("toml")


def test_yaml_is_written_for_people_to_read() -> None:
    """A text that older versions of YAML read as another type is in quotes."""
    brief = NodeConfig(agent=AgentConfig(model="test", instructions="Be brief.\nBe kind.\n"))
    quoted = NodeConfig(agent="x:y", context={"yes": "on", "day": "2026-11-15", "1e3": "1e3", "size": 1e20})
    config = WorkflowConfig(name="w", agents={"a": brief, "no": quoted})
    assert export_draft(read_draft(config), "yaml") == (
        "format: '1'\n"
        "name: w\n"
        "agents:\n"
        "  a:\n"
        "    agent:\n"
        "      model: test\n"
        "      instructions: |\n"
        "        Be brief.\n"
        "        Be kind.\n"
        "  'no':\n"
        "    agent: x:y\n"
        "    context:\n"
        "      'yes': 'on'\n"
        "      day: '2026-11-15'\n"
        "      '1e3': '1e3'\n"
        "      size: 1.0e+20\n"
    )


def test_agent_configs_are_exported_unchanged() -> None:
    config = AgentConfig(model="test", instructions="Be brief.", tools=(f"{HERE}:search",), model_settings={"t": 0.5})
    tree = json.loads(export_draft(started().add_agent("a", config)._draft, "json"))
    assert tree["agents"]["a"]["agent"] == {
        "model": "test",
        "instructions": "Be brief.",
        "tools": [f"{HERE}:search"],
        "model_settings": {"t": 0.5},
    }


NOT_WRITTEN = "has no import path, so it cannot be exported. Define it at the top of a module that can be imported"


def test_values_without_an_import_path_are_all_reported_with_their_places() -> None:
    def is_good(outputs: Any) -> bool:
        return True

    class Inner:
        pass

    nameless = ScriptedAgent("nameless", ["x"])
    workflow = (
        started()
        .add_agent("a", nameless, lambda node: node.requires_approval(when=lambda context: True).with_tools(lambda: 1))
        .add_agent("b", local, lambda node: node.structured_output(Inner))
        .from_("a").to("b").when(is_good)
        .build()
    )  # fmt: skip
    problems = refused(workflow)
    assert [line.split(": ")[0] for line in problems] == [
        "agents.a.agent",
        "agents.a.tools[0]",
        "agents.a.approval.predicate",
        "agents.b.output_types[0]",
        "edges[0].predicate",
    ]
    assert problems[0] == f"agents.a.agent: the agent {nameless!r} {NOT_WRITTEN}"
    assert problems[4] == f"edges[0].predicate: the function {is_good!r} {NOT_WRITTEN}"


def test_tool_that_differs_from_its_function_cannot_be_exported() -> None:
    renamed = Tool(parts.search, name="find")
    [problem] = refused(started().add_agent("a", local, lambda node: node.with_tools(renamed)).build())
    assert problem == f"agents.a.tools[0]: the tool {renamed!r} {NOT_WRITTEN}"


def test_context_that_is_not_plain_data_is_rejected_with_its_place() -> None:
    workflow = started().add_agent("a", local, lambda node: node.with_context("when", {"at": [{1}]})).build()
    plain = "texts, numbers, true, false, null, lists and mappings"
    problem = f"agents.a.context.when.at[0]: not plain data: a document holds {plain}; got {{1}}"
    assert refused(workflow) == [problem]


def test_inner_workflow_is_exported_by_its_path_or_rejected() -> None:
    nameless = started().with_name("inside").add_agent("x", ScriptedAgent("x", ["x"])).build()
    [problem] = refused(started().add_workflow("sub", nameless).build())
    assert problem.startswith("agents.sub.workflow.agents.x.agent: the agent ScriptedAgent")
    tree = json.loads(started().add_workflow("sub", NAMED).build().export_config())
    assert tree["agents"]["sub"] == {"workflow": f"{__name__}:NAMED"}


NAMED = AgentWorkflow.create().with_name("named").add_agent("x", ScriptedAgent("x", ["x"])).build()


def test_document_omits_the_store_which_must_be_added_again() -> None:
    kept = started().add_agent("a", local).with_checkpointing().with_in_memory_workflow_store().build()
    inside = json.loads(started().add_workflow("sub", kept).build().export_config())
    assert AgentWorkflow.from_config(inside).build().node_count == 1, "what is inside is kept with what is outside"
    with pytest.raises(InvalidDefinition, match=r"^settings\.checkpointing: the workflow has no workflow store"):
        AgentWorkflow.from_config(json.loads(kept.export_config())).build()


def test_document_is_exported_as_it_was_read() -> None:
    definition = document(version="3.1", settings={"timeout": 5.0})
    tree = json.loads(AgentWorkflow.from_config(definition).build().export_config())
    assert tree == {"format": "1", **definition}


PROGRAM = """
import sys
from perdure import run_sync
from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.testing import ScriptedAgent

def is_long(outputs): return len(outputs["answer"]) > 3
writer = ScriptedAgent("writer", ["a draft"])
print("loaded", __name__)

if __name__ == "__main__":
    if sys.argv[1] == "write":
        built = AgentWorkflow.create().with_name("w").add_agent("a", writer).add_agent("b", writer)
        text = built.from_("a").to("b").when(is_long).build().export_config("yaml")
        open("w.yaml", "w").write(text)
        print(text)
    workflow = AgentWorkflow.from_config("w.yaml").build()
    print(run_sync(workflow.run("x")).final_answer)
"""


def test_objects_of_a_program_are_found_by_another_process(tmp_path: Path) -> None:
    """Finding them does not run the program again."""
    (tmp_path / "team.py").write_text(PROGRAM)

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    written = run("-m", "team", "write")
    assert written.count("loaded") == 1
    assert "agent: team:writer" in written and "predicate: team:is_long" in written
    assert written.splitlines()[-1] == "a draft"
    assert run("team.py", "read").splitlines() == ["loaded __main__", "a draft"]
