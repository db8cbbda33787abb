"""The same step as a graph of AgentFlow, with its PostgreSQL checkpointer, for its own server.

As a program it creates the tables, because the server of AgentFlow does not create them.
"""

import asyncio
import os
from typing import Any

from agentflow.core.graph import StateGraph  # type: ignore[import-not-found]  # of the peer's environment
from agentflow.core.state import AgentState, Message  # type: ignore[import-not-found]  # the same
from agentflow.storage.checkpointer import PgCheckpointer  # type: ignore[import-not-found]  # the same
from agentflow.utils import END  # type: ignore[import-not-found]  # the same


def echo(state: AgentState, config: dict[str, Any]) -> Any:
    return Message.text_message(state.context[-1].text(), role="assistant")


graph = StateGraph()
graph.add_node("echo", echo)
graph.set_entry_point("echo")
graph.add_edge("echo", END)
checkpointer = PgCheckpointer(postgres_dsn=os.environ["BENCH_DSN"], redis_url=os.environ["BENCH_REDIS"])
app = graph.compile(checkpointer=checkpointer)

if __name__ == "__main__":
    asyncio.run(checkpointer.asetup())
