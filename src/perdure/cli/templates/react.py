"""The agent that this project serves: `app`. It thinks, acts and observes until it can answer.

Without a model it follows a few rules, so that everything works at once and offline. With MODEL set, such as
MODEL=openai:gpt-5-mini, a model thinks instead (pip install 'perdure[agents]').
"""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import Any

from perdure.agents import AgentResponse, AgentSession, Message, RecordingAgent, record_call


async def current_time() -> str:
    """The time of day where the server runs."""
    return datetime.now().astimezone().strftime("%H:%M")


class RuleFollower(RecordingAgent):
    """An agent without a model. All that it knows is in the thread: nothing is kept in this object."""

    async def turn(self, messages: list[Message], session: AgentSession | None, **kwargs: Any) -> AgentResponse:
        # The session is a part of the thread: it has the messages of earlier turns, also of those on other servers.
        before = session.messages if session is not None else []
        texts = [message.text for message in (*before, *messages) if message.role == "user"]
        observed: dict[str, str] = {}
        while (action := next_action(texts, observed)) is not None:
            # What is recorded is not done again if the server dies in the middle of a turn.
            observed[action] = await record_call(current_time, name=action)
        return AgentResponse(messages=(Message("assistant", answer(texts, observed), self.name),))


def next_action(texts: list[str], observed: dict[str, str]) -> str | None:
    """Think: which tool is to be called before there is an answer? None: there is one."""
    wants_time = re.search(r"\bwhat time\b", texts[-1] if texts else "", re.IGNORECASE)
    return "current_time" if wants_time and "current_time" not in observed else None


def answer(texts: list[str], observed: dict[str, str]) -> str:
    question = texts[-1] if texts else ""
    names = [
        match[1].strip() for text in texts for match in re.finditer(r"my name is ([^.,!?;\n]+)", text, re.IGNORECASE)
    ]
    if "current_time" in observed:
        return f"It is {observed['current_time']}."
    if re.search(r"(what is|what's) my name|who am i", question, re.IGNORECASE):
        return f"Your name is {names[-1]}." if names else "I do not know your name yet."
    if re.search(r"my name is", question, re.IGNORECASE) and names:
        return f"I will remember that your name is {names[-1]}."
    return "I follow a few rules. Say 'My name is ...', then ask 'What is my name?' or 'What time is it?'"


def make_app() -> Any:
    model = os.environ.get("MODEL")
    if not model:
        return RuleFollower("react")
    from perdure.agents import Agent

    instructions = "Answer in one or two sentences. You know what was said before in this conversation."
    return Agent(model, name="react", instructions=instructions, tools=[current_time])


app = make_app()
