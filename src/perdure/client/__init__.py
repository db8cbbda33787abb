"""A typed client of `perdure serve`: `Client` for asyncio, `SyncClient` for everything else. Needs httpx."""

from perdure.errors import MissingExtra

try:
    import httpx  # noqa: F401  # every module below imports it: here it is told how to get it
except ImportError as missing:
    raise MissingExtra("perdure.client", "httpx", "client") from missing

from perdure.client.async_client import Client
from perdure.client.errors import (
    ClientError,
    Conflict,
    ConnectionLost,
    CursorExpired,
    Invalid,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotSent,
    RunFailed,
    RunInterrupted,
    ServerError,
    StillRunning,
    TooManyRequests,
    Unavailable,
    UnreadableAnswer,
)
from perdure.client.models import (
    Answer,
    Cancelled,
    Change,
    Checkpoint,
    CheckpointState,
    Chunk,
    Detail,
    Diff,
    ErrorDetails,
    Event,
    Graph,
    InvokeResult,
    Message,
    NodeTools,
    Ready,
    Request,
    Run,
    Stopped,
    Thread,
    Tool,
    TurnMeta,
    Workflow,
)
from perdure.client.steps import Patience
from perdure.client.sync_client import SyncClient

__all__ = [
    "Answer",
    "Cancelled",
    "Change",
    "Checkpoint",
    "CheckpointState",
    "Chunk",
    "Client",
    "ClientError",
    "Conflict",
    "ConnectionLost",
    "CursorExpired",
    "Detail",
    "Diff",
    "ErrorDetails",
    "Event",
    "Graph",
    "Invalid",
    "InvokeResult",
    "Message",
    "NodeTools",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "NotSent",
    "Patience",
    "Ready",
    "Request",
    "Run",
    "RunFailed",
    "RunInterrupted",
    "ServerError",
    "StillRunning",
    "Stopped",
    "SyncClient",
    "Thread",
    "TooManyRequests",
    "Tool",
    "TurnMeta",
    "Unavailable",
    "UnreadableAnswer",
    "Workflow",
]
