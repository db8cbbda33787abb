"""The verification steps of the AgentFlow documentation, as printed there, and who runs them: curl, or httpx."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import subprocess
from typing import Any

import httpx
from tests.server.serving import Server

INVOKE = """curl -X POST http://127.0.0.1:8000/v1/graph/invoke \\
-H "Content-Type: application/json" \\
-d '{"messages": [{"role": "user", "content": "Remember my name is Alice"}], "config": {"thread_id": "demo-thread"}}'"""

FOLLOW_UP = """curl -X POST http://127.0.0.1:8000/v1/graph/invoke \\
-H "Content-Type: application/json" \\
-d '{"messages": [{"role": "user", "content": "What is my name?"}], "config": {"thread_id": "demo-thread"}}'"""

THREADS = "curl http://127.0.0.1:8000/v1/threads"
MESSAGES = "curl http://127.0.0.1:8000/v1/threads/demo-thread/messages"
STATE = "curl http://127.0.0.1:8000/v1/threads/demo-thread/state"


def drawn_name(seed: int) -> str:
    """Returns a random name that no server can know: letters of several scripts, one or two words."""
    chance = random.Random(seed)
    words = [
        "".join(chance.choices("aeioubdklmnrstäéøñłжд日", k=chance.randint(2, 9))) for _ in range(chance.randint(1, 2))
    ]
    return " ".join(word.capitalize() for word in words)


def typed(command: str, server: Server, name: str = "", *, with_curl: bool | None = None) -> Any:
    """Returns the output of the command as JSON, with this name for Alice."""
    return json.loads(printed(command.replace("Alice", name or "Alice"), server, with_curl=with_curl))


def printed(command: str, server: Server, *, with_curl: bool | None = None) -> str:
    """Returns the output of the command, with this server in place of the server on the page.

    The real curl runs it where there is one; elsewhere httpx sends the same bytes.
    """
    text = command.replace("http://127.0.0.1:8000", server.url)
    if with_curl is None:
        with_curl = shutil.which("curl") is not None
    return (_by_curl(text) if with_curl else _by_httpx(text)).decode()


def _by_curl(text: str) -> bytes:
    quiet = re.sub(r"^curl ", "curl --silent --show-error --noproxy '*' ", text)
    return subprocess.run(["sh", "-c", quiet], capture_output=True, check=True, timeout=60).stdout


def _by_httpx(text: str) -> bytes:
    """A command with -N, -X, -H and -d, which are all that the steps use."""
    words = shlex.split(text.replace("\\\n", " "))[1:]
    method, url, headers, body = "GET", "", {}, b""
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-H":
            key, _, value = words.pop(0).partition(":")
            headers[key] = value.strip()
        elif word == "-d":
            body = words.pop(0).encode()
        elif word != "-N":
            url = word
    with httpx.Client(trust_env=False, timeout=60) as client:
        return client.request(method, url, headers=headers, content=body or None).content


def answer(reply: Any) -> str:
    """Returns the text of the last message of an invoke."""
    return str(reply["data"]["messages"][-1]["content"][0]["text"])


def texts(messages: Any) -> list[tuple[str, str]]:
    return [(message["role"], message["content"][0]["text"]) for message in messages]


def assert_remembers(server: Server, name: str) -> None:
    """Step 2: the name comes from the thread alone."""
    assert answer(typed(FOLLOW_UP, server)) == f"Your name is {name}."


def assert_is_kept(server: Server, name: str, questions: int) -> None:
    """Step 3: the thread has the message with the name once, and the question so many times."""
    expected = [("user", f"Remember my name is {name}"), ("assistant", f"I will remember that your name is {name}.")]
    expected += [("user", "What is my name?"), ("assistant", f"Your name is {name}.")] * questions
    [thread] = typed(THREADS, server)["data"]["threads"]
    assert thread["thread_id"] == "demo-thread"
    assert texts(typed(MESSAGES, server)["data"]["messages"]) == expected
    assert texts(typed(STATE, server)["data"]["state"]["context"]) == expected
