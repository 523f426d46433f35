"""Turns and calls, what reviewers say of them, and how they come in."""

from quality.models.base import ACTIONABLE, EvidenceField, Label, PayloadField
from quality.models.bulk import LIVE_BULK, BulkAction, BulkItem, BulkKind, BulkState
from quality.models.cases import Case, CaseStatus, CaseVersion
from quality.models.exports import Export, ExportState
from quality.models.feedback import Feedback, FeedbackEvent, Review
from quality.models.gateway import GatewayDay, GatewayHistory
from quality.models.hints import Hint
from quality.models.imports import Import, ImportIssue, ImportState
from quality.models.improve import (
    ArtifactKind,
    CoachItem,
    CoachRun,
    CoachState,
    GuidelineVersion,
    Proposal,
    ProposalEvent,
    ProposalState,
)
from quality.models.queues import (
    Assignment,
    ItemTag,
    QueueEntry,
    QueueReviewer,
    ReviewQueue,
    Suggestion,
    SuggestionRun,
)
from quality.models.replays import (
    LIVE_REPLAYS,
    JudgeVote,
    QuarantineProposal,
    Replay,
    ReplayCase,
    ReplayFinding,
    ReplayNotification,
    ReplaySample,
    ReplaySchedule,
    ReplaySide,
    ReplayState,
)
from quality.models.rollups import CallHour, TouchedHour
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
from quality.models.spans import OtlpSpan, OtlpTrace
from quality.models.turns import CallState, ToolCall, Toolset, Turn, TurnState
from quality.models.views import DefaultView, SavedView, ViewPage
from quality.models.webhooks import Webhook, WebhookDelivery

__all__ = [
    "ACTIONABLE",
    "ENDED",
    "LIVE",
    "LIVE_BULK",
    "LIVE_REPLAYS",
    "ArtifactKind",
    "Assignment",
    "BulkAction",
    "BulkItem",
    "BulkKind",
    "BulkState",
    "CallDecision",
    "CallHour",
    "CallState",
    "Case",
    "CaseStatus",
    "CaseVersion",
    "Channel",
    "CoachItem",
    "CoachRun",
    "CoachState",
    "DecisionKind",
    "DefaultView",
    "EvidenceField",
    "Export",
    "ExportState",
    "Feedback",
    "FeedbackEvent",
    "GatewayDay",
    "GatewayHistory",
    "GuidelineVersion",
    "Hint",
    "Import",
    "ImportIssue",
    "ImportState",
    "ItemTag",
    "JudgeVote",
    "Label",
    "ModelReply",
    "OtlpSpan",
    "OtlpTrace",
    "PayloadField",
    "Proposal",
    "ProposalEvent",
    "ProposalState",
    "QuarantineProposal",
    "QueueEntry",
    "QueueReviewer",
    "Replay",
    "ReplayCase",
    "ReplayFinding",
    "ReplayNotification",
    "ReplaySample",
    "ReplaySchedule",
    "ReplaySide",
    "ReplayState",
    "Review",
    "ReviewQueue",
    "SavedView",
    "Schedule",
    "ScheduleSlot",
    "Suggestion",
    "SuggestionRun",
    "ToolCall",
    "Toolset",
    "TouchedHour",
    "Turn",
    "TurnEvent",
    "TurnRun",
    "TurnState",
    "ViewPage",
    "Webhook",
    "WebhookDelivery",
]
