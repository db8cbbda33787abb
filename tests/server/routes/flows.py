"""Small agents and workflows that the servers of these tests run. Each app makes its own."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import Any, Never

from perdure import (
    AgentWorkflow,
    Executor,
    RunContext,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    executor,
    handler,
    response_handler,
    step,
    workflow,
)
from perdure.agents import AgentResponse, AgentResponseUpdate, AgentSession, Content, Message
from perdure.agents.base import RecordingAgent
from perdure.agents.recording import emit_update
from perdure.testing import ScriptedAgent

gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
"""The events that the workflows here wait for, by a name that the test chooses."""
reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
"""The events that the workflows set when they reach a gate."""


async def at_gate(name: str) -> None:
    reached[name].set()
    await gates[name].wait()


def open_gate(name: str) -> None:
    gates[name].set()


class Rememberer(RecordingAgent):
    """Replies with all texts of the user in the thread."""

    async def turn(self, messages: list[Message], session: AgentSession | None, **kwargs: Any) -> AgentResponse:
        before = session.messages if session is not None else []
        texts = [message.text for message in (*before, *messages) if message.role == "user"]
        return AgentResponse(messages=(Message("assistant", f"heard: {', '.join(texts)}", self.name),))


def remembering() -> Any:
    return Rememberer("rememberer")


class Talker(RecordingAgent):
    """Emits two tokens. The second follows when the gate opens that the message names."""

    async def turn(self, messages: list[Message], session: AgentSession | None, **kwargs: Any) -> AgentResponse:
        fields: dict[str, Any] = {"role": "assistant", "message_id": f"said-{messages[-1].text}", "agent_id": self.id}
        emit_update(AgentResponseUpdate(contents=(Content.from_text("good "),), **fields))
        await at_gate(messages[-1].text)
        emit_update(AgentResponseUpdate(contents=(Content.from_text("evening"),), **fields))
        answer = Message("assistant", "good evening", self.name, fields["message_id"])
        return AgentResponse(messages=(answer,))


def talking() -> Any:
    return Talker("talker")


async def forecast(place: str, days: int = 1) -> str:
    """The weather of a place."""
    return f"rain in {place} for {days}"


def equipped() -> Any:
    return ScriptedAgent("equipped", ["done"], tools=[forecast])


# ---------------------------------------------------------------- graphs


@executor(id="count")
async def count(text: str, ctx: WorkflowContext[str]) -> None:
    ctx.set_state("words", len(text.split()))
    ctx.set_state("seen", [*ctx.get_state("seen", []), text])
    await ctx.send_message(text)


@executor(id="shout")
async def shout(text: str, ctx: WorkflowContext[str]) -> None:
    await ctx.add_event(WorkflowEvent("progress", {"done": 0.5}))
    ctx.set_state("loud", {"text": text.upper(), "times": 1})
    await ctx.send_message(text.upper())


@executor(id="reply")
async def reply(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"{text} ({ctx.get_state('words')} words)")


def counting() -> Any:
    """Three supersteps and a shared state."""
    return WorkflowBuilder(name="counting", start_executor=count).add_chain([count, shout, reply]).build()


@dataclass
class Parcel:
    weight: float
    to: str


@executor(id="weigh")
async def weigh(parcel: Parcel, ctx: WorkflowContext[Never, Parcel]) -> None:
    await ctx.yield_output(Parcel(parcel.weight * 2, parcel.to))


def parcels() -> Any:
    """Takes no text."""
    return WorkflowBuilder(name="parcels", start_executor=weigh).build()


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Verdict:
    approved: bool
    comment: str = ""


@dataclass
class Question:
    text: str


class Asker(Executor):
    """Asks for what the words of the message name: `verdict`, `colour`, `bool`."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext) -> None:
        types: dict[str, Any] = {"verdict": Verdict, "colour": Colour, "bool": bool}
        for word in text.split():
            await ctx.request_info(Question(f"{word}?"), types[word], request_id=word, assignee="ada")

    @response_handler
    async def judged(self, question: Question, verdict: Verdict, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{type(verdict).__name__} {verdict.approved} {verdict.comment}")

    @response_handler
    async def coloured(self, question: Question, colour: Colour, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{type(colour).__name__} {colour.name}")

    @response_handler
    async def yes_or_no(self, question: Question, answer: bool, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{type(answer).__name__} {answer}")


def asking() -> Any:
    return WorkflowBuilder(name="asking", start_executor=Asker("asker")).build()


@executor(id="first")
async def first(text: str, ctx: WorkflowContext[str]) -> None:
    ctx.set_state("begun", text)
    await ctx.send_message(text)


@executor(id="fall")
async def fall(text: str, ctx: WorkflowContext[Never, str]) -> None:
    if ctx.get_state("mended", False):
        await ctx.yield_output(f"mended {text}")
    else:
        raise ValueError(f"no {text} today")


def failing() -> Any:
    """Fails in its second superstep, until the client sets the flag that `fall` reads."""
    return WorkflowBuilder(name="failing", start_executor=first).add_edge(first, fall).build()


@executor(id="wait")
async def wait(gate: str, ctx: WorkflowContext[Never, str]) -> None:
    await at_gate(gate)
    await ctx.yield_output(f"passed {gate}")


def waiting() -> Any:
    """Ends when the gate that the message names is opened."""
    return WorkflowBuilder(name="waiting", start_executor=first).add_edge(first, wait).build()


@executor(id="nap")
async def nap(seconds: float, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.sleep(seconds)
    await ctx.yield_output("awake")


def sleeping() -> Any:
    return WorkflowBuilder(name="sleeping", start_executor=nap).build()


@executor(id="loop")
async def loop(left: int, ctx: WorkflowContext[int, str]) -> None:
    if left:
        await ctx.send_message(left - 1)
    else:
        await ctx.yield_output("round")


@executor(id="enter")
async def enter(text: str, ctx: WorkflowContext[int]) -> None:
    await ctx.send_message(int(text))


def looping() -> Any:
    """Runs as many supersteps as the message names, and two more."""
    return WorkflowBuilder(name="looping", start_executor=enter).add_edge(enter, loop).add_edge(loop, loop).build()


# ---------------------------------------------------------------- of other kinds


@step
async def twice(text: str) -> str:
    return f"{text} {text}"


@workflow(name="digest")
async def digest(text: str, ctx: RunContext) -> str:
    doubled = await twice(text)
    title = await ctx.request_info(f"A title for {doubled!r}?", str, request_id="title")
    return f"{title}: {doubled}"


def reviewing() -> Any:
    writer, editor = (
        ScriptedAgent("writer", lambda messages: "a draft"),
        ScriptedAgent("editor", lambda messages: "a text"),
    )
    made = AgentWorkflow.create().with_name("reviewing").add_agent("draft", writer).add_agent("edit", editor)
    return made.from_("draft").to("edit").build()


def named(messages: list[str]) -> str:
    return f"about {messages[0]}"


class Namer:
    async def generate_name(self, messages: list[str]) -> str:
        if "nothing" in messages[0]:
            raise RuntimeError("out of names")
        return f"about {' | '.join(messages)}"


async def reject_all(credentials: Any) -> None:
    """Rejects all credentials."""
