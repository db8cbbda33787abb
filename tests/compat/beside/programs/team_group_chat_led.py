"""Group chats led by an agent or by an orchestrator of the caller."""

import json
from typing import Any

from _team import Scripted, chat_agent, described
from flows import GroupChatBuilder, InMemoryCheckpointStorage


def decision(next_speaker: str | None = None, final_message: str | None = None) -> str:
    terminate = next_speaker is None
    fields = {"terminate": terminate, "reason": "", "next_speaker": next_speaker, "final_message": final_message}
    return json.dumps(fields)


def team() -> list[Scripted]:
    return [Scripted("ann", "one", "two", "three"), Scripted("bob", "eins", "zwei")]


async def main() -> Any:
    results: dict[str, Any] = {}
    chair = chat_agent("chair", decision("bob"), decision("ann"), decision(final_message="done"))
    workflow = GroupChatBuilder(participants=team(), orchestrator_agent=chair, intermediate_output_from="all").build()
    results["led"] = described(await workflow.run("count"))
    results["format"] = sorted(chair.client.options[0]["response_format"].model_json_schema()["required"])
    results["executors"] = sorted(workflow.executors), workflow.get_start_executor().id
    results["requests"] = [len(request) for request in chair.client.requests]
    chair = chat_agent("chair", decision("bob"), decision(final_message="done"))
    builder = GroupChatBuilder(participants=team(), orchestrator_agent=chair)
    workflow = builder.with_checkpointing(InMemoryCheckpointStorage()).build()
    results["saved"] = described(await workflow.run("count"))
    chair = chat_agent("chair", decision("bob"), decision())
    workflow = GroupChatBuilder(participants=team(), orchestrator_agent=chair).build()
    results["no final message"] = described(await workflow.run("count"))
    chair = chat_agent("chair", decision("bob"))
    workflow = GroupChatBuilder(participants=team(), orchestrator_agent=chair, max_rounds=2).build()
    results["rounds"] = described(await workflow.run("count")), len(chair.client.requests)
    twofold = chat_agent("chair", decision("ann"), decision("bob") + "\n" + decision(None, "end"))
    workflow = GroupChatBuilder(participants=team(), orchestrator_agent=twofold).build()
    results["two objects"] = described(await workflow.run("count"))
    made = GroupChatBuilder(
        participants=team(), orchestrator_agent=lambda: chat_agent("chair", decision("bob"), decision(None, "end"))
    ).build()
    results["factory"] = described(await made.run("count"))
    return results
