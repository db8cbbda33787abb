"""A typed client of `perdure serve`: `Client` for asyncio, `SyncClient` for everything else. Needs httpx."""

from __future__ import annotations

from perdure.errors import MissingExtra

try:
    import httpx  # noqa: F401  # every module below imports it; the error here names the extra
except ImportError as missing:
    raise MissingExtra("perdure.client", "httpx", "client") from missing

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

__all__ = [name for name, value in globals().items() if getattr(value, "__module__", "").startswith(f"{__name__}.")]
