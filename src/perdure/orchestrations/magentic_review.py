"""Plan review: a person reads the plan before anybody works by it, and approves it or says what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from perdure.agents.message import Message, as_messages
from perdure.orchestrations.magentic_ledger import MagenticProgressLedger

Feedback: TypeAlias = str | Message | Sequence[str | Message]


class MagenticPlanReviewResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer: no messages approve the plan; any others say what to change. As JSON: `{"review": []}`."""

    review: list[Message]

    @staticmethod
    def approve() -> MagenticPlanReviewResponse:
        return MagenticPlanReviewResponse([])

    @staticmethod
    def revise(feedback: Feedback) -> MagenticPlanReviewResponse:
        """Raises ValueError where nothing is said: that would approve the plan."""
        review = as_messages(feedback)
        if not any(one.text.strip() for one in review):
            raise ValueError("A plan is sent back with what is wrong with it, got no text. To agree: approve().")
        return MagenticPlanReviewResponse(review)

    @property
    def is_approved(self) -> bool:
        return not self.review


class MagenticPlanReviewRequest(msgspec.Struct, frozen=True):
    """Asks for a review of the plan. Answer with `run(responses={request.request_id: request.approve()})`."""

    plan: Message
    current_progress: MagenticProgressLedger | None = None
    """The last judgement; None before anybody has worked."""
    is_stalled: bool = False
    """Whether the plan takes the place of one that led nowhere."""
    request_id: str = ""

    def approve(self) -> MagenticPlanReviewResponse:
        """Go on by this plan."""
        return MagenticPlanReviewResponse.approve()

    def revise(self, feedback: Feedback) -> MagenticPlanReviewResponse:
        """Have another plan made, with this in mind; it will be asked about again."""
        return MagenticPlanReviewResponse.revise(feedback)
