"""What a server can run, by name, and where it keeps threads."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.six_methods import SixMethods

import perdure
from perdure import Executor, InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, handler
from perdure.agent_workflow.builder.workflow import AgentWorkflow
from perdure.agents import AgentResponse, Message
from perdure.agents.base import RecordingAgent
from perdure.server.app.factory import make_storage, resolve_paths
from perdure.server.app.project import Project
from perdure.server.app.registry import Registry
from perdure.server.config.schema import NotServable, ServerConfig, UnknownWorkflow


class Echo(RecordingAgent):
    async def turn(self, messages: list[Message], session: Any, **kwargs: Any) -> AgentResponse:
        return AgentResponse(messages=(Message("assistant", messages[-1].text),))


class Upper(Executor):
    @handler
    async def up(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(text.upper())


@perdure.workflow
async def shout(text: str) -> str:
    return text.upper()


def builder(name: str = "upper", executor_id: str = "up", storage: Any = None) -> WorkflowBuilder:
    return WorkflowBuilder(name=name, start_executor=Upper(executor_id), checkpoint_storage=storage)


def team() -> AgentWorkflow:
    return AgentWorkflow.create().with_name("team").add_agent("a", Echo("a"))


async def later() -> WorkflowBuilder:
    return builder()


def needs(what: str) -> WorkflowBuilder:
    return builder(what)


def fails() -> WorkflowBuilder:
    raise RuntimeError("no database")


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that a project could have; what a test puts there can be named."""
    module = ModuleType("shelf_of_test")
    monkeypatch.setitem(sys.modules, "shelf_of_test", module)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return module


def registry(folder: Path, agent: str | None = None, **workflows: str) -> Registry:
    named = {name: f"shelf_of_test:{one}" for name, one in workflows.items()}
    config = ServerConfig(agent=agent and f"shelf_of_test:{agent}", workflows=named, folder=str(folder))
    return Registry.of(config, Project(folder))


@pytest.mark.parametrize(
    ("thing", "kind", "name"),
    [
        (builder().build(), "workflow", "upper"),
        (builder(), "workflow", "upper"),
        (builder, "workflow", "upper"),
        (shout, "function", "shout"),
        (team(), "agent_workflow", "team"),
        (team().build(), "agent_workflow", "team"),
        (team, "agent_workflow", "team"),
        (Echo("echo"), "agent", "echo"),
        (lambda: Echo("echo"), "agent", "echo"),
    ],
)
def test_all_that_can_be_run_becomes_a_workflow(tmp_path: Path, shelf: Any, thing: Any, kind: str, name: str) -> None:
    shelf.app = thing
    found = registry(tmp_path, "app").default
    assert found is not None
    assert (found.name, found.kind, found.workflow.name) == (name, kind, name)


async def test_an_agent_becomes_a_workflow_whose_thread_is_its_conversation(tmp_path: Path, shelf: Any) -> None:
    shelf.app = Echo("echo")
    found = registry(tmp_path, "app").default
    assert found is not None
    result = await found.workflow.run("hello", thread_id="t", checkpoint_storage=InMemoryCheckpointStorage())
    assert [one.text for one in result.get_outputs()] == ["hello"]
    assert found.source is shelf.app


def test_a_document_is_read_from_the_project(tmp_path: Path, shelf: Any) -> None:
    shelf.echo = Echo("echo")
    document = '{"name": "story", "agents": {"a": {"agent": "shelf_of_test:echo"}}}'
    (tmp_path / "story.json").write_text(document)
    config = ServerConfig(agent="story.json", folder=str(tmp_path))
    found = Registry.of(config, Project(tmp_path)).default
    assert found is not None
    assert (found.name, found.kind) == ("story", "agent_workflow")


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (7, "is an int. A server runs a Workflow"),
        (None, "is None. A server runs"),
        (Upper, "is the class Upper, not an object of it."),
        (Upper("up"), "is a lone executor (Upper)."),
        (later, "is an async function. Make it synchronous"),
        (needs, "is a function that needs arguments: missing a required argument: 'what'."),
        (fails, "failed when called without arguments: RuntimeError: no database ("),
        (lambda: 7, "is an int."),
        (AgentWorkflow.create(), "cannot be built: "),
    ],
)
def test_anything_else_is_refused_with_what_it_is(tmp_path: Path, shelf: Any, thing: Any, said: str) -> None:
    shelf.app = thing
    with pytest.raises(NotServable) as caught:
        registry(tmp_path, "app")
    assert str(caught.value).startswith(f"'shelf_of_test:app' {said}")


def test_workflows_are_found_by_the_names_that_clients_use(tmp_path: Path, shelf: Any) -> None:
    shelf.one, shelf.two = builder("first"), builder("second")
    found = registry(tmp_path, "one", review="two")
    assert found.names == ("first", "review")
    assert found.default is found["first"]
    assert found["review"].workflow.name == "second"
    assert found.by_workflow_name("second") is found.find("review")
    assert (found.by_workflow_name("review"), found.find("x")) == (None, None)
    with pytest.raises(UnknownWorkflow, match=r"No workflow 'revew' exists \(did you mean 'review'\?\)"):
        found["revew"]


def test_what_is_named_twice_is_one(tmp_path: Path, shelf: Any) -> None:
    shelf.one = builder
    found = registry(tmp_path, "one", review="one", again="one")
    assert found.names == ("review", "again")
    assert found.default is found["review"]
    assert found["review"].workflow is found["again"].workflow


def test_the_only_workflow_is_the_default_and_of_several_none_is(tmp_path: Path, shelf: Any) -> None:
    shelf.one, shelf.two = builder("first"), builder("second")
    only = registry(tmp_path, one="one")
    assert only.default is only["one"]
    assert registry(tmp_path, one="one", two="two").default is None


def test_two_graphs_of_one_name_are_refused(tmp_path: Path, shelf: Any) -> None:
    shelf.one, shelf.two = builder("same"), builder("same", "other")
    with pytest.raises(NotServable, match=r"different graphs with the same name 'same'.*WorkflowBuilder\(name='...'\)"):
        registry(tmp_path, one="one", two="two")
    shelf.two = builder("other")
    with pytest.raises(NotServable, match="and 'shelf_of_test:two' in `workflows` are both called 'same'"):
        registry(tmp_path, "one", same="two")


# ---------------------------------------------------------------- where threads are kept


def kept(folder: Path, shelf: Any, checkpointer: str | None, own: Any = None) -> Any:
    shelf.app = builder(storage=own)
    config = ServerConfig(agent="shelf_of_test:app", checkpointer=checkpointer, folder=str(folder))
    project = Project(folder)
    return make_storage(config, project, Registry.of(config, project))


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (None, "perdure.db"),
        ("sqlite:///data/x y.db", "data/x y.db"),
        ("sqlite:./x.db", "x.db"),
        ("file:threads", "threads"),
        ("x.db", "x.db"),
    ],
)
def test_paths_in_urls_are_those_of_the_project(tmp_path: Path, shelf: Any, url: str | None, path: str) -> None:
    folder = tmp_path / "a folder #1?"
    folder.mkdir()
    assert kept(folder, shelf, url).store.path == folder / path


def test_urls_from_the_root_stay_as_they_are(tmp_path: Path) -> None:
    for url in ("sqlite:////var/x.db", "file:///var/x", "memory:", "postgresql://h/d", "sqlite:///x.db?mode=ro"):
        assert resolve_paths(tmp_path, url) == url


def test_an_object_is_used_and_so_is_what_a_function_gives(tmp_path: Path, shelf: Any) -> None:
    shelf.storage = InMemoryCheckpointStorage()
    shelf.make = lambda: shelf.storage
    assert kept(tmp_path, shelf, "shelf_of_test:storage") is shelf.storage
    assert kept(tmp_path, shelf, "shelf_of_test:make") is shelf.storage


def test_without_a_checkpointer_it_is_the_default_workflows_own(tmp_path: Path, shelf: Any) -> None:
    own = InMemoryCheckpointStorage()
    assert kept(tmp_path, shelf, None, own) is own


def test_a_workflows_own_storage_that_is_not_used_is_warned_of(
    tmp_path: Path, shelf: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "perdure"):
        kept(tmp_path, shelf, "memory:", InMemoryCheckpointStorage())
    assert caplog.messages == ["upper has its own storage, which is not used: the server's storage keeps its threads."]


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (SixMethods(), "without an event log"),
        (InMemoryCheckpointStorage, "is the class InMemoryCheckpointStorage, not an object of it."),
        ("sqlite:///x.db", "is a str, not a storage."),
    ],
)
def test_what_is_no_storage_of_a_server_is_refused(tmp_path: Path, shelf: Any, thing: Any, said: str) -> None:
    shelf.storage = thing
    with pytest.raises(NotServable) as caught:
        kept(tmp_path, shelf, "shelf_of_test:storage")
    assert said in str(caught.value)


def test_keys_in_the_environment_encrypt_what_a_url_names(
    tmp_path: Path, shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_KEYS", f"one:{perdure.AesGcm.generate_key()}")
    assert type(kept(tmp_path, shelf, "sqlite:///x.db").store).__name__ == "EncryptedStore"
