"""Arguments that several commands take: a store, a thread, a checkpoint, and a confirmation."""

from __future__ import annotations

import asyncio
import functools
import os
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from perdure.checkpoints.access import is_encrypted
from perdure.checkpoints.storage import StoreCheckpointStorage
from perdure.cli.errors import Mistake
from perdure.cli.tables import format_time
from perdure.cli.values import make_printable
from perdure.errors import DamagedCheckpoint, PerdureError, did_you_mean
from perdure.records import CheckpointInfo, ThreadInfo
from perdure.storages import keys_in_environment, open_store
from perdure.stores.memory.store import MemoryStore
from perdure.stores.postgres.urls import Unreachable, is_postgres, redacted_url, split_schema

if TYPE_CHECKING:
    from perdure.codecs.aes_gcm import AesGcm


VARIABLE = "PERDURE_STORE"
REDIS_VARIABLE = "PERDURE_REDIS_URL"
DEFAULT = "sqlite:///perdure.db"
DEFAULT_FILE = "perdure.db"
DEFAULT_SCHEMA = "perdure"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Result = TypeVar("Result")


store_option = click.option(
    "--store",
    metavar="URL",
    envvar=VARIABLE,
    help="Where threads are stored: sqlite:///file.db, file:folder or postgresql://user@host/database. Otherwise "
    f"${VARIABLE}, otherwise {DEFAULT_FILE} in this folder.",
)
sessions_option = click.option(
    "--sessions", metavar="FOLDER", help="Where agents' conversations are stored, if the workflow has any."
)
json_option = click.option("--json", "as_json", is_flag=True, help="For machines.")


def output_and_store_options(command: Decorated) -> Decorated:
    return json_option(store_option(command))


yes_option = click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
takeover_option = click.option(
    "--takeover", is_flag=True, help="Take the thread over from its owner, such as a process that hangs."
)


def load_keys() -> AesGcm | None:
    """The keys in the environment, which every command uses. Raises UsageError for an invalid key."""
    try:
        return keys_in_environment()
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def find_store(
    store: str | None,
    own: Any = None,
    *,
    may_be_new: bool = False,
    named: str = "--store",
    with_keys: bool = True,
) -> Any:
    """The storage of a command: the named one, the workflow's `own`, or the file of the default name.

    Raises UsageError for a URL that names no store. Raises Mistake for a store that cannot be reached, or does not
    exist and may not be created. `named`: the argument with the URL. `with_keys`: encrypt with the environment's keys.
    """
    if store is None and isinstance(own, StoreCheckpointStorage) and not _is_in_memory(own):
        return own
    if store is None and not Path(DEFAULT_FILE).exists():
        hint = f" `--store {DEFAULT}` creates it." if may_be_new else ""
        raise Mistake(
            f"No store was named, and this folder has no {DEFAULT_FILE}. Name a store with --store URL or "
            f"{VARIABLE}=URL, such as {DEFAULT}.{hint}"
        )
    url = store or DEFAULT
    storage = open_named_store(url, named, encryption=load_keys() if with_keys else None)
    if is_postgres(url):
        _check_postgres(url, may_be_new=may_be_new)
    path = getattr(storage.store, "path", None)
    if not may_be_new and path is not None and not Path(path).exists():
        raise Mistake(f"No store exists at {str(path)!r}.")
    return storage


def open_named_store(url: str, named: str, *, encryption: AesGcm | None = None) -> StoreCheckpointStorage:
    """The storage that a URL names, not opened yet. Raises UsageError."""
    redis_url = os.environ.get(REDIS_VARIABLE) or None
    try:
        storage = open_store(url, encryption=encryption, redis_url=redis_url if is_postgres(url) else None)
    except ValueError as error:
        text = str(error).replace(", postgresql://host/database or memory:", " or postgresql://host/database")
        raise click.UsageError(f"{named}: {text}") from error
    if _is_in_memory(storage):
        raise click.UsageError(f"{named}: a store in memory ends with the command. Name a file or a folder.")
    return storage


def _check_postgres(url: str, *, may_be_new: bool) -> None:
    """Raises Mistake unless the server answers and has the schema: a storage would create it, and wait for a server
    that does not answer."""
    from perdure.stores.postgres.health import inspect_schema

    dsn, named = split_schema(url)
    schema = named or DEFAULT_SCHEMA
    try:
        with ThreadPoolExecutor(1) as own:  # the command may be in an event loop already
            result = own.submit(asyncio.run, inspect_schema(dsn, schema)).result()
    except Unreachable as problem:
        raise Mistake(str(problem)) from None
    if result.version or result.foreign:  # the storage itself refuses what it cannot use
        return
    where = f"schema {schema!r} of {redacted_url(dsn)}"
    if not may_be_new:
        raise Mistake(f"No store exists in {where}. `perdure run`, `import` and `transfer` create one.")
    if not result.may_create:
        raise Mistake(
            f"No store exists in {where}, and this user may not create one. `perdure doctor` shows what is missing."
        )


def _is_in_memory(storage: StoreCheckpointStorage) -> bool:
    return isinstance(getattr(storage.store, "inner", storage.store), MemoryStore)


@asynccontextmanager
async def source_store(store: str, named: str) -> AsyncIterator[StoreCheckpointStorage]:
    """The open storage that threads are copied from, with the keys that it needs."""
    async with find_store(store, named=named, with_keys=False) as storage:
        if load_keys() is None or not await is_encrypted(storage.store):
            yield storage
            return
    async with find_store(store, named=named) as storage:
        yield storage


def work_in(
    store: str | None, work: Callable[[StoreCheckpointStorage], Awaitable[Result]], *, may_be_new: bool = False
) -> Result:
    """The result of the work, which gets the open storage."""

    async def run() -> Result:
        async with find_store(store, may_be_new=may_be_new) as storage:
            return await work(storage)

    return asyncio.run(run())


def store_command(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A command that works in one existing store: that of `--store`, or of an argument `url`."""

    @output_and_store_options
    @functools.wraps(command)
    def run(store: str | None, url: str | None = None, **arguments: Any) -> None:
        work_in(url or store, lambda storage: command(storage, **arguments))

    return run


async def find_thread(storage: StoreCheckpointStorage, thread_id: str) -> ThreadInfo:
    """Raises Mistake if there is none."""
    result = await storage.store.threads(thread_id=thread_id)
    if not result:
        guess = did_you_mean(thread_id, [item.thread_id for item in await storage.list_threads(limit=1000)])
        raise Mistake(f"No thread {thread_id!r} exists in this store{guess}. `perdure threads` lists them.")
    return result[0]


@dataclass(frozen=True)
class StoreLocation:
    """The names on the command line, for the commands that a message suggests."""

    app: str
    thread_id: str
    store: str | None
    sessions: str | None = None

    def resume(self) -> str:
        return self._command("resume", self.app, self.thread_id, *self._sessions())

    def answer(self, request_id: str, value: str) -> str:
        return self._command("answer", self.thread_id, request_id, value, "--app", self.app, *self._sessions())

    def show(self) -> str:
        return self._command("show", self.thread_id)

    def add_resume_hint(self, failure: str) -> str:
        end = "" if failure.endswith((".", "!", "?")) else "."
        return (
            f"{failure}{end} The thread is at its last checkpoint. Fix the cause, then resume with: "
            f"{self.resume()} (the stack trace is in its log: {self.show()} --events)"
        )

    def _sessions(self) -> tuple[str, ...]:
        return () if self.sessions is None else ("--sessions", self.sessions)

    def _command(self, *words: str) -> str:
        words = ("perdure", *words)
        if self.store is not None and not is_postgres(self.store):
            words += ("--store", self.store)
        # Never with its password. Where the variable names it, it need not be named again.
        elif self.store is not None and self.store != os.environ.get(VARIABLE):
            words += ("--store", redacted_url(self.store))
        return make_printable(shlex.join(words))


MOST = 200
"""The newest ids, which completion reads: a user waits at the keyboard."""


def _completion(read: Callable[[Any, click.Context], Awaitable[list[CompletionItem]]]) -> Callable[..., Any]:
    """Completes with the ids that `read` returns from the store; with none where no store exists."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # While the value of an option is completed, click knows of no other option.
        store = context.params.get("store") or os.environ.get(VARIABLE)
        try:
            items = work_in(store, lambda storage: read(storage, context))
        except (PerdureError, OSError, click.ClickException):
            return []
        return [item for item in items if item.value.startswith(incomplete)]

    return complete


@_completion
async def complete_threads(storage: Any, _: click.Context) -> list[CompletionItem]:
    result = await storage.list_threads(limit=MOST)
    return [CompletionItem(item.thread_id, help=item.workflow_name) for item in reversed(result)]


@_completion
async def complete_checkpoints(storage: Any, context: click.Context) -> list[CompletionItem]:
    result = await storage.list_checkpoint_infos(thread_id=context.params.get("thread_id"), limit=MOST)
    return [
        CompletionItem(item.checkpoint_id, help=f"commit {item.number} of {item.thread_id}")
        for item in reversed(result)
    ]


@_completion
async def complete_definitions(storage: Any, _: click.Context) -> list[CompletionItem]:
    from perdure.agent_workflow.store import PREFIX, WORKFLOW

    result = await storage.list_threads(workflow_name=WORKFLOW, limit=MOST)
    return [CompletionItem(item.thread_id.removeprefix(PREFIX)) for item in result]


thread_argument = click.argument("thread_id", metavar="THREAD", shell_complete=complete_threads)


MAX_LISTED = 5
"""How many checkpoints an error about an ambiguous id lists."""


def checkpoint_argument(
    name: str, metavar: str = "CHECKPOINT", *, required: bool = True
) -> Callable[[Decorated], Decorated]:
    return click.argument(name, metavar=metavar, required=required, shell_complete=complete_checkpoints)


async def find_checkpoint(storage: StoreCheckpointStorage, named: str) -> CheckpointInfo:
    """The named checkpoint; a thread's id names its newest one. Raises Mistake if none exists, or if several ids begin
    like that."""
    return (
        await _find_exact(storage, named) or await _find_head(storage, named) or await _find_by_prefix(storage, named)
    )


async def find_checkpoint_of(storage: StoreCheckpointStorage, thread: ThreadInfo, named: str) -> CheckpointInfo:
    """The named checkpoint of this thread. Raises Mistake if none exists, or it belongs to another thread."""
    checkpoint = await _find_exact(storage, named) or await _find_by_prefix(storage, named, thread.thread_id)
    if checkpoint.thread_id != thread.thread_id:
        raise Mistake(
            f"Checkpoint {checkpoint.checkpoint_id!r} belongs to thread {checkpoint.thread_id!r}, not to "
            f"{thread.thread_id!r}. Nothing was changed."
        )
    return checkpoint


async def _find_head(storage: StoreCheckpointStorage, thread_id: str) -> CheckpointInfo | None:
    """None if no such thread exists."""
    for thread in await storage.store.threads(thread_id=thread_id):
        if thread.checkpoint_id is None:
            raise Mistake(f"Thread {thread_id!r} has no checkpoint yet.")
        return await _find_exact(storage, thread.checkpoint_id)
    return None


async def _find_exact(storage: StoreCheckpointStorage, named: str) -> CheckpointInfo | None:
    try:
        checkpoint = await storage.store.find_checkpoint(named)
    except DamagedCheckpoint:
        return next((info for info in await storage.list_checkpoint_infos() if info.checkpoint_id == named), None)
    return None if checkpoint is None else checkpoint.info


async def _find_by_prefix(storage: StoreCheckpointStorage, named: str, thread_id: str | None = None) -> CheckpointInfo:
    infos = await storage.list_checkpoint_infos(thread_id=thread_id)
    matches = [info for info in infos if named and info.checkpoint_id.startswith(named)]
    if len(matches) == 1:
        return matches[0]
    if not matches and thread_id is not None:
        raise Mistake(f"Thread {thread_id!r} has no checkpoint {named!r}. `perdure show {thread_id}` lists the newest.")
    if not matches:
        guess = did_you_mean(named, [info.thread_id for info in await storage.list_threads(limit=1000)])
        raise Mistake(
            f"No checkpoint and no thread {named!r} exists in this store{guess}. "
            "`perdure threads` lists threads, `perdure show THREAD` a thread's checkpoints."
        )
    listed = "".join(
        f"\n  {info.checkpoint_id}  commit {info.number} of {info.thread_id}, {format_time(info.timestamp)}"
        for info in matches[-MAX_LISTED:]
    )
    more = f"\n  and {len(matches) - MAX_LISTED} more" if len(matches) > MAX_LISTED else ""
    raise Mistake(f"{len(matches)} checkpoints begin with {named!r}; enter more of the id:{listed}{more}")


def confirm(question: str, *, yes: bool) -> None:
    """Returns after a yes. Raises UsageError without a terminal, and Mistake if the answer is no.

    The question goes to stderr: stdout is for the output of the command.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("This needs a confirmation and no terminal is attached: add --yes. Nothing was done.")
    if not click.confirm(question, default=False, err=True):
        raise Mistake("Not confirmed. Nothing was done.")
