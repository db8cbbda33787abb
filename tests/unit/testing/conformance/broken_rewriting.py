"""Stores that are broken in how they put payloads through a change."""

from __future__ import annotations

from tests.unit.testing.conformance.passing import Passing, breaks

from perdure.store import Rewrite
from perdure.testing.conformance.clauses import copies


@breaks(copies.every_payload_goes_through_the_change)
class LeavesTheInboxAsItIs(Passing):
    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        return await super().rewrite(
            thread_id, lambda kind, name, data: data if kind == "inbox" else change(kind, name, data)
        )


@breaks(copies.nothing_but_payloads_is_rewritten)
class UnpinsWhatItRewrites(Passing):
    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        for info in await self.inner.infos(thread_id=thread_id):
            await self.inner.unpin(info.checkpoint_id)
        return await super().rewrite(thread_id, change)


@breaks(copies.the_owner_of_a_rewritten_thread_continues)
class TakesTheThreadToRewriteIt(Passing):
    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        opened = await self.inner.open(thread_id, "rewriting", takeover=True)
        await self.inner.release(opened.lease)
        return await super().rewrite(thread_id, change)


@breaks(copies.a_change_that_fails_leaves_each_commit_whole)
class RewritesAsFarAsItComes(Passing):
    """What a change gave before it failed is kept, wherever in a commit that was."""

    async def rewrite(self, thread_id: str, change: Rewrite) -> int:
        failed: list[Exception] = []

        def passed_over(kind: str, name: str, data: bytes) -> bytes:
            try:
                return data if failed else change(kind, name, data)
            except Exception as error:  # noqa: BLE001  # raised again below
                failed.append(error)
                return data

        count = await super().rewrite(thread_id, passed_over)
        for error in failed:
            raise error
        return count
