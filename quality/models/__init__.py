"""Turns and calls, what reviewers say of them, and how they come in."""

from quality.models.base import ACTIONABLE, EvidenceField, Label
from quality.models.feedback import Feedback, FeedbackEvent, Review
from quality.models.imports import Import, ImportIssue, ImportState
from quality.models.turns import CallState, ToolCall, Toolset, Turn, TurnState

__all__ = [
    "ACTIONABLE",
    "CallState",
    "EvidenceField",
    "Feedback",
    "FeedbackEvent",
    "Import",
    "ImportIssue",
    "ImportState",
    "Label",
    "Review",
    "ToolCall",
    "Toolset",
    "Turn",
    "TurnState",
]
