"""A typed client of `perdure serve`: `Client` for asyncio, `SyncClient` for everything else. Needs httpx.

The names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import MissingExtra
from perdure.names import homes_of, lazy_exports

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

_HOME = homes_of(
    {
        "perdure.client.async_client": "Client",
        "perdure.client.connection": "Patience",
        "perdure.client.errors": (
            "ClientError Conflict ConnectionLost CursorExpired Invalid NotAllowed NotAuthenticated NotFound "
            "NotSent RunFailed RunInterrupted ServerError StillRunning TooManyRequests Unavailable "
            "UnreadableAnswer"
        ),
        "perdure.client.models": (
            "Answer Cancelled Change Checkpoint CheckpointState Chunk Detail Diff ErrorDetails Event Graph "
            "InvokeResult Message NodeTools Ready Request Run Stopped Thread Tool TurnMeta Workflow"
        ),
        "perdure.client.sync_client": "SyncClient",
    }
)

__all__ = list(_HOME)

if not TYPE_CHECKING:  # checkers take the imports above; with this in sight they would let every misspelt name pass
    __getattr__, __dir__ = lazy_exports(__name__, _HOME)
