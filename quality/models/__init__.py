"""Turns and calls, what reviewers say of them, and how they come in."""

from quality.models.base import ACTIONABLE, EvidenceField, Label
from quality.models.feedback import Feedback, FeedbackEvent, Review
from quality.models.imports import Import, ImportIssue, ImportState
from quality.models.runs import (
    ENDED,
    LIVE,
    CallDecision,
    Channel,
    DecisionKind,
    ModelReply,
    TurnEvent,
    TurnRun,
)
from quality.models.schedules import Schedule, ScheduleSlot
from quality.models.turns import CallState, ToolCall, Toolset, Turn, TurnState

__all__ = [
    "ACTIONABLE",
    "ENDED",
    "LIVE",
    "CallDecision",
    "CallState",
    "Channel",
    "DecisionKind",
    "EvidenceField",
    "Feedback",
    "FeedbackEvent",
    "Import",
    "ImportIssue",
    "ImportState",
    "Label",
    "ModelReply",
    "Review",
    "Schedule",
    "ScheduleSlot",
    "ToolCall",
    "Toolset",
    "Turn",
    "TurnEvent",
    "TurnRun",
    "TurnState",
]
