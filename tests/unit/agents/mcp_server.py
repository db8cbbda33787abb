"""An MCP server over stdio, for tests: `python -m tests.unit.agents.mcp_server LOG`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("weather")


@server.tool()  # type: ignore[untyped-decorator]
def forecast(town: str) -> str:
    """The weather of a town."""
    with Path(sys.argv[1]).open("a") as log:
        log.write(json.dumps({"asked": town}) + "\n")
    return f"Rain in {town}."


if __name__ == "__main__":
    server.run()
