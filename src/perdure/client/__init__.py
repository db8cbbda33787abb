"""A typed client of `perdure serve`: `Client` for asyncio, `SyncClient` for everything else. Needs httpx.

The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import MissingExtra
from perdure.lazy import lazy_exports

try:
    import httpx  # noqa: F401  # every module below imports it; the error here names the extra
except ImportError as missing:
    raise MissingExtra("perdure.client", "httpx", "client") from missing

if TYPE_CHECKING:
    from perdure.client.async_client import Client as Client
    from perdure.client.connection import Patience as Patience
    from perdure.client.errors import (
        ClientError as ClientError,
        Conflict as Conflict,
        ConnectionLost as ConnectionLost,
        CursorExpired as CursorExpired,
        Invalid as Invalid,
        NotAllowed as NotAllowed,
        NotAuthenticated as NotAuthenticated,
        NotFound as NotFound,
        NotSent as NotSent,
        RunFailed as RunFailed,
        RunInterrupted as RunInterrupted,
        ServerError as ServerError,
        StillRunning as StillRunning,
        TooManyRequests as TooManyRequests,
        Unavailable as Unavailable,
        UnreadableAnswer as UnreadableAnswer,
    )
    from perdure.client.models import (
        Answer as Answer,
        Cancelled as Cancelled,
        Change as Change,
        Checkpoint as Checkpoint,
        CheckpointState as CheckpointState,
        Chunk as Chunk,
        Detail as Detail,
        Diff as Diff,
        ErrorDetails as ErrorDetails,
        Event as Event,
        Graph as Graph,
        InvokeResult as InvokeResult,
        Message as Message,
        NodeTools as NodeTools,
        Ready as Ready,
        Request as Request,
        Run as Run,
        Stopped as Stopped,
        Thread as Thread,
        Tool as Tool,
        TurnMeta as TurnMeta,
        Workflow as Workflow,
    )
    from perdure.client.sync_client import SyncClient as SyncClient

_HOME: dict[str, str] = {
    "Answer": "perdure.client.models",
    "Cancelled": "perdure.client.models",
    "Change": "perdure.client.models",
    "Checkpoint": "perdure.client.models",
    "CheckpointState": "perdure.client.models",
    "Chunk": "perdure.client.models",
    "Client": "perdure.client.async_client",
    "ClientError": "perdure.client.errors",
    "Conflict": "perdure.client.errors",
    "ConnectionLost": "perdure.client.errors",
    "CursorExpired": "perdure.client.errors",
    "Detail": "perdure.client.models",
    "Diff": "perdure.client.models",
    "ErrorDetails": "perdure.client.models",
    "Event": "perdure.client.models",
    "Graph": "perdure.client.models",
    "Invalid": "perdure.client.errors",
    "InvokeResult": "perdure.client.models",
    "Message": "perdure.client.models",
    "NodeTools": "perdure.client.models",
    "NotAllowed": "perdure.client.errors",
    "NotAuthenticated": "perdure.client.errors",
    "NotFound": "perdure.client.errors",
    "NotSent": "perdure.client.errors",
    "Patience": "perdure.client.connection",
    "Ready": "perdure.client.models",
    "Request": "perdure.client.models",
    "Run": "perdure.client.models",
    "RunFailed": "perdure.client.errors",
    "RunInterrupted": "perdure.client.errors",
    "ServerError": "perdure.client.errors",
    "StillRunning": "perdure.client.errors",
    "Stopped": "perdure.client.models",
    "SyncClient": "perdure.client.sync_client",
    "Thread": "perdure.client.models",
    "TooManyRequests": "perdure.client.errors",
    "Tool": "perdure.client.models",
    "TurnMeta": "perdure.client.models",
    "Unavailable": "perdure.client.errors",
    "UnreadableAnswer": "perdure.client.errors",
    "Workflow": "perdure.client.models",
}

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazy_exports(__name__, _HOME)
