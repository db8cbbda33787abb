"""Draw a workflow: `python examples/drawing.py picture.svg`, or without a path to print a Mermaid flowchart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Never

from perdure import Case, Default, Workflow, WorkflowBuilder, WorkflowContext, WorkflowExecutor, executor


@executor(id="plan")
async def plan(topic: str) -> str:
    return topic


@executor(id="search_news")
async def search_news(topic: str) -> str:
    return f"news of {topic}"


@executor(id="search_papers")
async def search_papers(topic: str) -> str:
    return f"papers on {topic}"


@executor(id="collect")
async def collect(texts: list[str]) -> str:
    return ", ".join(texts)


@executor(id="draft")
async def draft(material: str) -> str:
    return f"Draft from {material}"


@executor(id="critic")
async def critic(text: str) -> str:
    return text if text.endswith("!") else f"{text}!"


@executor(id="polish")
async def polish(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(text.replace("Draft", "Article"))


@executor(id="editor")
async def editor(text: str) -> str:
    return text


@executor(id="publish")
async def publish(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(text)


@executor(id="ask_lawyer")
async def ask_lawyer(text: str, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(f"for review: {text}")


def needs_work(text: str) -> bool:
    return not text.endswith("!")


def is_good(text: str) -> bool:
    return not needs_work(text)


def is_risky(text: str) -> bool:
    return "secret" in text


def is_off_topic(text: str) -> bool:
    return "news" not in text


def build() -> Workflow:
    """A workflow with a fan-out, a fan-in, a sub-workflow with a loop, and a switch with a case that leads back."""
    writing = (
        WorkflowBuilder(name="writing", start_executor=draft)
        .add_edge(draft, critic)
        .add_edge(critic, draft, needs_work)
        .add_edge(critic, polish, is_good)
        .build()
    )
    write = WorkflowExecutor(writing, "write")
    return (
        WorkflowBuilder(name="newsroom", start_executor=plan)
        .add_fan_out_edges(plan, [search_news, search_papers])
        .add_fan_in_edges([search_news, search_papers], collect)
        .add_chain([collect, write, editor])
        .add_switch_case_edge_group(editor, [Case(is_risky, ask_lawyer), Case(is_off_topic, plan), Default(publish)])
        .build()
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(build().to_svg(), encoding="utf-8")
    else:
        print(build().to_mermaid())
