"""A team of agents of Agent Framework that is killed in the middle, and resumed: `killed.py FOLDER STORAGE_URL`.

The first process is killed in the first turn of the second agent. The next one takes the thread to its end, and prints
what the models got and what the checkpoint has. The models note their requests in FOLDER.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import agent_framework as af

from perdure import (
    AgentExecutor,
    AgentExecutorRequest,
    AgentExecutorResponse,
    Content,
    Executor,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    open_store,
)

FOLDER = Path(sys.argv[1])
THREAD = "killed"


class Model(af.BaseChatClient):  # type: ignore[misc]
    """Notes what it gets in a file, which survives the process, and answers with a number."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.file = FOLDER / name

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        return self._answer([[message.role, message.text, message.author_name] for message in messages])

    async def _answer(self, seen: list[Any]) -> Any:
        with self.file.open("a") as file:
            file.write(json.dumps(seen) + "\n")
        if self.file.name == "critic" and len(self.file.read_text().splitlines()) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        number = len(self.file.read_text().splitlines())
        text = Content.from_text(f"{self.file.name} {number}", annotations=[{"type": "citation", "title": "t"}])
        return af.ChatResponse(messages=[Message("assistant", [text])])


class Editor(Executor):
    """Keeps a message of the framework in the state, and sends the critic's answer back to the writer."""

    @handler
    async def begin(self, task: af.Message, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        ctx.set_state("task", task)
        await ctx.send_message(AgentExecutorRequest([task]), target_id="writer")

    @handler
    async def edit(
        self, response: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorRequest, list[af.Message]]
    ) -> None:
        task = ctx.get_state("task")
        if len(response.full_conversation) > 4:
            await ctx.yield_output([task, *response.full_conversation])
            return
        messages = [*response.full_conversation, Message("user", ["again"])]
        await ctx.send_message(AgentExecutorRequest(messages), target_id="writer")


def build(storage: Any) -> Any:
    editor = Editor(id="editor")
    session = af.AgentSession(session_id="mine")
    session.state["notes"] = af.Message("user", ["kept"])
    writer = AgentExecutor(af.Agent(client=Model("writer"), name="writer"), session=session)
    critic = AgentExecutor(af.Agent(client=Model("critic"), name="critic"))
    builder = WorkflowBuilder(start_executor=editor, name="team", output_from=[editor], checkpoint_storage=storage)
    return builder.add_edge(editor, writer).add_chain([writer, critic, editor]).build()


async def main() -> None:
    async with open_store(sys.argv[2]) as storage:
        workflow = build(storage)
        if not (FOLDER / "begun").exists():
            (FOLDER / "begun").touch()
            task = af.Message("user", ["task"], additional_properties={"k": 1}, message_id="m1")
            await workflow.run(task, thread_id=THREAD)
        result = await workflow.run(thread_id=THREAD)
        checkpoint = await storage.load(result.checkpoint_id)
        [messages] = result.get_outputs()
        private: Any = checkpoint.executors["writer"].private
        session = private["session"].state["agent_framework"]
        seen = {name: (FOLDER / name).read_text().splitlines() for name in ("writer", "critic")}
        print(
            json.dumps(
                {
                    "seen": {name: [json.loads(line) for line in lines] for name, lines in seen.items()},
                    "output": [[type(message).__module__.partition(".")[0], message.text] for message in messages],
                    "task": messages[0].to_dict(),
                    "annotations": messages[2].contents[0].annotations,
                    "session": [session["session_id"], session["state"]["notes"]["contents"][0]["text"]],
                }
            )
        )


if __name__ == "__main__":
    asyncio.run(main())
