"""The prompts of a Magentic manager, and how they are filled in. Each can be replaced."""

from __future__ import annotations

from typing import Any

ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT = """\
Here is a task:

{task}

Before anybody starts, take stock of it. Write four short lists, under these headings:

GIVEN: facts, names and numbers that the task states.
TO LOOK UP: facts that the team has to find, and where they may be found.
TO WORK OUT: what follows from facts by calculation or reasoning.
GUESSES: what you believe from memory or intuition, and would want to have checked.

A list may be empty: then write "none" under its heading. Write no plan and no next steps yet."""

ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT = """\
Only the people on your team can do the work:

{team}

Write a short plan for the task, as a list of steps. Name for each step who does it and what comes out of it. Not
everybody has to take part."""

ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT = """\
The team works on this task:

{task}

The team:

{team}

What is known so far:

{facts}

The plan:

{plan}"""

ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT = """\
The work on the task below does not get on as planned. Its task, again:

{task}

Go over the four lists of facts. Put what was found out since where it belongs, drop what turned out to be wrong, and
add at least one new guess that could help, with the reason for it. Write all lists again, in full.

The lists as they were:

{old_facts}"""

ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT = """\
Say in one or two sentences why the last plan did not work. Then write a new one that avoids this: a list of steps, each
with who does it and what comes out of it. The team is still:

{team}"""

ORCHESTRATOR_PROGRESS_LEDGER_PROMPT = """\
The task, again:

{task}

The team:

{team}

Judge where the work stands, from the conversation so far:

- is_request_satisfied: is the task done, wholly and well? True only if nothing is left to do.
- is_in_loop: are the same requests and answers coming up again and again, over more than one turn?
- is_progress_being_made: did the last turns bring the task forward? False if they added nothing, or if something blocks
  the work.
- next_speaker: who should speak next? One of: {names}
- instruction_or_question: what would you say to them now? Address them directly, and give them what they need to know.

Answer with one JSON object of this form, and with nothing else:

{{
  "is_request_satisfied": {{"reason": "...", "answer": true or false}},
  "is_in_loop": {{"reason": "...", "answer": true or false}},
  "is_progress_being_made": {{"reason": "...", "answer": true or false}},
  "next_speaker": {{"reason": "...", "answer": "one of the names"}},
  "instruction_or_question": {{"reason": "...", "answer": "what you say to them"}}
}}"""

ORCHESTRATOR_FINAL_ANSWER_PROMPT = """\
The work on this task has ended:

{task}

Give the one who set the task their answer now, from what the conversation brought to light. Speak to them directly, and
do not write about the team or about how the work went, unless they asked for that."""

FIELDS: dict[str, tuple[str, ...]] = {
    "task_ledger_facts_prompt": ("task",),
    "task_ledger_plan_prompt": ("team",),
    "task_ledger_full_prompt": ("task", "team", "facts", "plan"),
    "task_ledger_facts_update_prompt": ("task", "old_facts"),
    "task_ledger_plan_update_prompt": ("team",),
    "progress_ledger_prompt": ("task", "team", "names"),
    "final_answer_prompt": ("task",),
}
"""Prompt -> the fields that it may name in braces."""

DEFAULTS: dict[str, str] = {
    "task_ledger_facts_prompt": ORCHESTRATOR_TASK_LEDGER_FACTS_PROMPT,
    "task_ledger_plan_prompt": ORCHESTRATOR_TASK_LEDGER_PLAN_PROMPT,
    "task_ledger_full_prompt": ORCHESTRATOR_TASK_LEDGER_FULL_PROMPT,
    "task_ledger_facts_update_prompt": ORCHESTRATOR_TASK_LEDGER_FACTS_UPDATE_PROMPT,
    "task_ledger_plan_update_prompt": ORCHESTRATOR_TASK_LEDGER_PLAN_UPDATE_PROMPT,
    "progress_ledger_prompt": ORCHESTRATOR_PROGRESS_LEDGER_PROMPT,
    "final_answer_prompt": ORCHESTRATOR_FINAL_ANSWER_PROMPT,
}


def choose_prompt(name: str, prompt: str | None) -> str:
    """The prompt, or the default. Raises ValueError or TypeError for a prompt that cannot be filled in."""
    if prompt is None:
        return DEFAULTS[name]
    if not isinstance(prompt, str):
        raise TypeError(f"{name} is a text, got {prompt!r}.")
    fields = FIELDS[name]
    try:
        prompt.format(**dict.fromkeys(fields, ""))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        known = ", ".join(f"{{{field}}}" for field in fields)
        raise ValueError(
            f"{name} cannot be filled in ({type(error).__name__}: {error}). It may name {known}; other braces, such as "
            "those of JSON, are written twice: {{ and }}."
        ) from error
    return prompt


def fill(prompt: str, **values: Any) -> str:
    return prompt.format(**values)
