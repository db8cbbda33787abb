"""A route of Litestar that does nothing, on the same uvicorn: the limit for a server."""

import sys
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar, get, post


class Body(msgspec.Struct):
    messages: list[dict[str, Any]]
    config: dict[str, Any]


@post("/v1/graph/invoke", status_code=200)
async def invoke(data: Body) -> dict[str, Any]:
    return {"data": {"messages": data.messages, "meta": data.config}}


@get("/ping")
async def ping() -> dict[str, str]:
    return {"data": "pong"}


if __name__ == "__main__":
    app = Litestar([invoke, ping], openapi_config=None)
    uvicorn.run(app, port=int(sys.argv[1]), log_config=None, access_log=False)
