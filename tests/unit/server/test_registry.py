"""The workflows of a server by name, and the storage of its threads."""

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
from perdure.server.config.schema import NotServable, ServerConfig
from perdure.server.factory import make_storage, resolve_paths
from perdure.server.registry import Project, Registry


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
    """A module that a configuration can name. Tests add objects to it."""
    module = ModuleType("shelf_of_test")
    monkeypatch.setitem(sys.modules, "shelf_of_test", module)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return module


def registry(folder: Path, agent: str | None = None, **workflows: str) -> Registry:
    named = {name: f"shelf_of_test:{attribute}" for name, attribute in workflows.items()}
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
def test_runnable_objects_become_workflows(tmp_path: Path, shelf: Any, thing: Any, kind: str, name: str) -> None:
    shelf.app = thing
    entry = registry(tmp_path, "app").default
    assert entry is not None
    assert (entry.name, entry.kind, entry.workflow.name) == (name, kind, name)


async def test_agent_becomes_a_workflow_that_answers(tmp_path: Path, shelf: Any) -> None:
    shelf.app = Echo("echo")
    entry = registry(tmp_path, "app").default
    assert entry is not None
    result = await entry.workflow.run("hello", thread_id="t", checkpoint_storage=InMemoryCheckpointStorage())
    assert [response.text for response in result.get_outputs()] == ["hello"]


def test_workflow_document_is_read_from_the_project(tmp_path: Path, shelf: Any) -> None:
    shelf.echo = Echo("echo")
    document = '{"name": "story", "agents": {"a": {"agent": "shelf_of_test:echo"}}}'
    (tmp_path / "story.json").write_text(document)
    config = ServerConfig(agent="story.json", folder=str(tmp_path))
    entry = Registry.of(config, Project(tmp_path)).default
    assert entry is not None
    assert (entry.name, entry.kind) == ("story", "agent_workflow")


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (7, "is an int. perdure runs a Workflow"),
        (None, "is None. perdure runs"),
        (Upper, "is the class Upper, not an object of it."),
        (Upper("up"), "is a lone executor (Upper)."),
        (later, "is an async function. Make it synchronous"),
        (needs, "is a function that needs arguments: missing a required argument: 'what'."),
        (fails, "failed when called without arguments: RuntimeError: no database ("),
        (lambda: 7, "is an int."),
        (AgentWorkflow.create(), "cannot be built: "),
    ],
)
def test_error_of_an_unservable_object_names_its_type(tmp_path: Path, shelf: Any, thing: Any, message: str) -> None:
    shelf.app = thing
    with pytest.raises(NotServable) as caught:
        registry(tmp_path, "app")
    assert str(caught.value).startswith(f"'shelf_of_test:app' {message}")


def test_workflows_are_found_by_the_names_of_the_configuration(tmp_path: Path, shelf: Any) -> None:
    shelf.app, shelf.other = builder("first"), builder("second")
    known = registry(tmp_path, "app", review="other")
    assert tuple(known) == ("first", "review")
    assert known.default is known["first"]
    assert known["review"].workflow.name == "second"
    assert known.by_workflow_name("second") is known["review"].workflow
    assert (known.by_workflow_name("review"), known.get("x")) == (None, None)


def test_workflow_that_is_named_twice_is_built_once(tmp_path: Path, shelf: Any) -> None:
    shelf.app = builder
    known = registry(tmp_path, "app", review="app", again="app")
    assert tuple(known) == ("review", "again")
    assert known.default is known["review"]
    assert known["review"].workflow is known["again"].workflow


def test_only_workflow_is_the_default_and_of_several_none_is(tmp_path: Path, shelf: Any) -> None:
    shelf.app, shelf.other = builder("first"), builder("second")
    only = registry(tmp_path, app="app")
    assert only.default is only["app"]
    assert registry(tmp_path, app="app", other="other").default is None


def test_two_workflows_of_the_same_name_are_rejected(tmp_path: Path, shelf: Any) -> None:
    shelf.app, shelf.other = builder("same"), builder("same", "other")
    with pytest.raises(NotServable, match=r"different graphs with the same name 'same'.*WorkflowBuilder\(name='...'\)"):
        registry(tmp_path, app="app", other="other")
    shelf.other = builder("other")
    with pytest.raises(NotServable, match="and 'shelf_of_test:other' in `workflows` are both called 'same'"):
        registry(tmp_path, "app", same="other")


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
def test_relative_paths_in_urls_are_below_the_project_folder(
    tmp_path: Path, shelf: Any, url: str | None, path: str
) -> None:
    folder = tmp_path / "a folder #1?"
    folder.mkdir()
    assert kept(folder, shelf, url).store.path == folder / path


def test_absolute_urls_are_not_changed(tmp_path: Path) -> None:
    for url in ("sqlite:////var/x.db", "file:///var/x", "memory:", "postgresql://h/d", "sqlite:///x.db?mode=ro"):
        assert resolve_paths(tmp_path, url) == url


def test_checkpointer_can_be_an_object_or_a_function(tmp_path: Path, shelf: Any) -> None:
    shelf.storage = InMemoryCheckpointStorage()
    shelf.make = lambda: shelf.storage
    assert kept(tmp_path, shelf, "shelf_of_test:storage") is shelf.storage
    assert kept(tmp_path, shelf, "shelf_of_test:make") is shelf.storage


def test_storage_is_that_of_the_default_workflow_without_a_checkpointer(tmp_path: Path, shelf: Any) -> None:
    own = InMemoryCheckpointStorage()
    assert kept(tmp_path, shelf, None, own) is own


def test_warning_names_a_workflow_whose_own_storage_is_not_used(
    tmp_path: Path, shelf: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "perdure"):
        kept(tmp_path, shelf, "memory:", InMemoryCheckpointStorage())
    assert caplog.messages == ["upper has its own storage, which is not used: the server's storage keeps its threads."]


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (SixMethods(), "without an event log"),
        (InMemoryCheckpointStorage, "is the class InMemoryCheckpointStorage, not an object of it."),
        ("sqlite:///x.db", "is a str, not a storage."),
    ],
)
def test_object_that_is_not_a_server_storage_is_rejected(tmp_path: Path, shelf: Any, thing: Any, message: str) -> None:
    shelf.storage = thing
    with pytest.raises(NotServable) as caught:
        kept(tmp_path, shelf, "shelf_of_test:storage")
    assert message in str(caught.value)


def test_keys_in_the_environment_encrypt_the_storage_of_a_url(
    tmp_path: Path, shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_KEYS", f"one:{perdure.AesGcm.generate_key()}")
    assert type(kept(tmp_path, shelf, "sqlite:///x.db").store).__name__ == "EncryptedStore"
