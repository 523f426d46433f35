"""The API (bearer tokens only), its schema and pages, and the health check."""

from django.urls import path, register_converter

from quality.api import (
    agreement,
    calls,
    cases,
    coach,
    docs,
    endpoints,
    exchange,
    exports,
    guidelines,
    health,
    ingest,
    limits,
    otlp,
    proposals,
    queues,
    replay_schedules,
    replays,
    schedules,
    styles,
    suggestions,
    tools,
    turns,
    webhooks,
)
from quality.gateway import views as gateway

ADMIN = "api/admin/quality/"


class CaseRef:
    """A case by its number, as `REG-12` or `12`."""

    regex = r"(?:REG-)?[1-9][0-9]{0,9}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(CaseRef, "case")

urlpatterns = [
    path(f"{ADMIN}tool-calls", calls.CallsView.as_view(), name="api-tool-calls"),
    path(f"{ADMIN}tool-calls/export.jsonl", exports.CallExportView.as_view(), name="api-tool-calls-export"),
    path(f"{ADMIN}tool-calls/<int:pk>", calls.CallView.as_view(), name="api-tool-call"),
    path(f"{ADMIN}tool-calls/<int:pk>/feedback", calls.CallFeedbackView.as_view(), name="api-tool-call-feedback"),
    path(f"{ADMIN}tool-calls/<int:pk>/feedback/undo", calls.CallUndoView.as_view(), name="api-tool-call-undo"),
    path(f"{ADMIN}turns/<int:pk>/feedback", calls.TurnFeedbackView.as_view(), name="api-turn-feedback"),
    path(f"{ADMIN}turns/<int:pk>/feedback/undo", calls.TurnUndoView.as_view(), name="api-turn-undo"),
    path(f"{ADMIN}tool-call-feedback/summary", exports.SummaryView.as_view(), name="api-feedback-summary"),
    path(f"{ADMIN}agreement", agreement.AgreementView.as_view(), name="api-agreement"),
    path(f"{ADMIN}tool-call-feedback/export.jsonl", exports.FeedbackExportView.as_view(), name="api-feedback-export"),
    path(f"{ADMIN}tool-call-feedback/export.csv", exports.FeedbackSheetView.as_view(), name="api-feedback-sheet"),
    path(f"{ADMIN}tool-call-regression-cases/export.jsonl", exports.CaseExportView.as_view(), name="api-cases-export"),
    path(
        f"{ADMIN}improvement-proposals/export.jsonl", exports.ProposalExportView.as_view(), name="api-proposals-export"
    ),
    path(f"{ADMIN}tool-call-feedback/proposals", proposals.GroupsView.as_view(), name="api-feedback-groups"),
    path(f"{ADMIN}improvement-proposals", proposals.ProposalsView.as_view(), name="api-proposals"),
    path(f"{ADMIN}improvement-proposals/<int:pk>", proposals.ProposalView.as_view(), name="api-proposal"),
    path(
        f"{ADMIN}improvement-proposals/<int:pk>/dismiss", proposals.DismissView.as_view(), name="api-proposal-dismiss"
    ),
    path(f"{ADMIN}improvement-proposals/<int:pk>/apply", proposals.ApplyView.as_view(), name="api-proposal-apply"),
    path(f"{ADMIN}improvement-proposals/<int:pk>/case", proposals.ProposalCaseView.as_view(), name="api-proposal-case"),
    path(f"{ADMIN}improvement-proposals/<int:pk>/reopen", proposals.ReopenView.as_view(), name="api-proposal-reopen"),
    path(f"{ADMIN}tool-call-regression-cases", cases.CasesView.as_view(), name="api-cases"),
    path(f"{ADMIN}tool-call-regression-cases/import", cases.CaseImportView.as_view(), name="api-cases-import"),
    path(f"{ADMIN}tool-call-regression-cases/<case:ref>", cases.CaseView.as_view(), name="api-case"),
    path(
        f"{ADMIN}tool-call-regression-cases/<case:ref>/versions",
        cases.CaseVersionsView.as_view(),
        name="api-case-versions",
    ),
    path(f"{ADMIN}tool-call-regression-cases/<case:ref>/archive", cases.ArchiveView.as_view(), name="api-case-archive"),
    path(f"{ADMIN}tool-call-regression-cases/<case:ref>/restore", cases.RestoreView.as_view(), name="api-case-restore"),
    path(f"{ADMIN}tool-call-regression-cases/<case:ref>/merge", cases.MergeView.as_view(), name="api-case-merge"),
    path(f"{ADMIN}tool-call-regression-cases/<case:ref>/judge", cases.JudgeView.as_view(), name="api-case-judge"),
    path(f"{ADMIN}queues", queues.QueuesView.as_view(), name="api-queues"),
    path(f"{ADMIN}queues/<int:pk>", queues.QueueView.as_view(), name="api-queue"),
    path(f"{ADMIN}queues/<int:pk>/progress", queues.QueueProgressView.as_view(), name="api-queue-progress"),
    path(f"{ADMIN}queues/<int:pk>/adjudication", queues.QueueAdjudicationView.as_view(), name="api-queue-adjudication"),
    path(f"{ADMIN}queues/<int:pk>/entries", queues.QueueEntriesView.as_view(), name="api-queue-entries"),
    path(f"{ADMIN}queues/<int:pk>/entries/<int:entry>", queues.QueueEntryView.as_view(), name="api-queue-entry"),
    path(f"{ADMIN}guidelines", guidelines.GuidelinesView.as_view(), name="api-guidelines"),
    path(f"{ADMIN}coach/proposals", coach.CoachView.as_view(), name="api-coach"),
    path(f"{ADMIN}coach/proposals/<int:pk>", coach.CoachRunView.as_view(), name="api-coach-run"),
    path("api/ingest/tool-calls", ingest.ToolCallsIngestView.as_view(), name="api-ingest-tool-calls"),
    path("api/turns", turns.TurnsView.as_view(), name="api-turns"),
    path("api/turns/<int:pk>", turns.TurnView.as_view(), name="api-turn"),
    path("api/turns/<int:pk>/events", turns.TurnEventsView.as_view(), name="api-turn-events"),
    path("api/turns/<int:pk>/tool-results", turns.TurnResultsView.as_view(), name="api-turn-tool-results"),
    path("api/turns/<int:pk>/cancel", turns.TurnCancelView.as_view(), name="api-turn-cancel"),
    path("api/tools", tools.ActiveToolsView.as_view(), name="api-active-tools"),
    path("api/admin/tools", tools.ToolsView.as_view(), name="api-tools"),
    path("api/admin/tools/booking", tools.BookingView.as_view(), name="api-booking"),
    path("api/admin/tools/switches", tools.ToolSwitchView.as_view(), name="api-tool-switch"),
    path("api/admin/tools/scripts", limits.ScriptsView.as_view(), name="api-scripts"),
    path("api/admin/tools/databases", limits.DatabasesView.as_view(), name="api-databases"),
    path("api/admin/tools/<int:pk>", tools.KeptToolView.as_view(), name="api-kept-tool"),
    path("api/admin/limits", limits.LimitsView.as_view(), name="api-limits"),
    path("api/admin/tools/definitions", tools.KeptToolsView.as_view(), name="api-kept-tools"),
    path("api/admin/secrets", tools.SecretsView.as_view(), name="api-secrets"),
    path("api/admin/secrets/<int:pk>", tools.SecretView.as_view(), name="api-secret"),
    path("api/admin/styles", styles.StylesView.as_view(), name="api-styles"),
    path("api/admin/styles/<int:pk>", styles.StyleView.as_view(), name="api-style"),
    path("api/admin/styles/<int:pk>/restore", styles.StyleRestoreView.as_view(), name="api-style-restore"),
    path("api/admin/skills", styles.SkillsView.as_view(), name="api-skills"),
    path("api/admin/skills/<int:pk>", styles.SkillView.as_view(), name="api-skill"),
    path("api/admin/exchange", exchange.DeskView.as_view(), name="api-exchange"),
    path("api/admin/exchange/rates", exchange.RatesView.as_view(), name="api-rates"),
    path("api/admin/exchange/rates/<int:pk>", exchange.RateView.as_view(), name="api-rate"),
    path("api/admin/exchange/requisites", exchange.RequisitesView.as_view(), name="api-requisites"),
    path("api/admin/exchange/customers", exchange.CustomersView.as_view(), name="api-customers"),
    path("api/admin/exchange/orders", exchange.OrdersView.as_view(), name="api-orders"),
    path("api/admin/exchange/orders/<int:pk>/paid", exchange.OrderPaidView.as_view(), name="api-order-paid"),
    path("api/admin/exchange/orders/<int:pk>/cancel", exchange.OrderCancelView.as_view(), name="api-order-cancel"),
    path("api/admin/models", endpoints.ModelsView.as_view(), name="api-models"),
    path("api/admin/models/<int:pk>", endpoints.ModelView.as_view(), name="api-model"),
    path("api/admin/models/<int:pk>/test", endpoints.ModelTestView.as_view(), name="api-model-test"),
    path("api/admin/schedules", schedules.SchedulesView.as_view(), name="api-schedules"),
    path("api/admin/schedules/<int:pk>", schedules.ScheduleView.as_view(), name="api-schedule"),
    path("api/admin/schedules/<int:pk>/run", schedules.ScheduleRunView.as_view(), name="api-schedule-run"),
    path("api/replays", replays.ReplaysView.as_view(), name="api-replays"),
    path("api/replays/estimate", replays.ReplayEstimateView.as_view(), name="api-replay-estimate"),
    path("api/replays/findings", replays.OpenFindingsView.as_view(), name="api-open-disputes"),
    path("api/replays/findings/<int:pk>/settle", replays.SettleView.as_view(), name="api-finding-settle"),
    path(f"{ADMIN}suggestion-runs", suggestions.SuggestionRunsView.as_view(), name="api-suggestion-runs"),
    path(f"{ADMIN}suggestion-runs/<int:pk>", suggestions.SuggestionRunView.as_view(), name="api-suggestion-run"),
    path(
        f"{ADMIN}suggestion-runs/<int:pk>/cancel",
        suggestions.SuggestionRunCancelView.as_view(),
        name="api-suggestion-run-cancel",
    ),
    path(
        f"{ADMIN}suggestion-runs/<int:pk>/suggestions", suggestions.SuggestionsView.as_view(), name="api-suggestions"
    ),
    path("api/webhooks", webhooks.WebhooksView.as_view(), name="api-webhooks"),
    path("api/webhooks/<int:pk>", webhooks.WebhookView.as_view(), name="api-webhook"),
    path("api/webhooks/<int:pk>/test", webhooks.WebhookTestView.as_view(), name="api-webhook-test"),
    path("api/webhooks/<int:pk>/deliveries", webhooks.WebhookDeliveriesView.as_view(), name="api-webhook-deliveries"),
    path("api/webhooks/deliveries/<int:pk>/again", webhooks.WebhookDeliveryView.as_view(), name="api-webhook-again"),
    path("api/replays/schedules", replay_schedules.ReplaySchedulesView.as_view(), name="api-replay-schedules"),
    path("api/replays/schedules/<int:pk>", replay_schedules.ReplayScheduleView.as_view(), name="api-replay-schedule"),
    path(
        "api/replays/schedules/<int:pk>/run",
        replay_schedules.ReplayScheduleRunView.as_view(),
        name="api-replay-schedule-run",
    ),
    path(
        "api/replays/schedules/<int:pk>/notifications",
        replay_schedules.ReplayNotificationsView.as_view(),
        name="api-replay-notifications",
    ),
    path("api/replays/<int:pk>", replays.ReplayView.as_view(), name="api-replay"),
    path("api/replays/<int:pk>/pause", replays.ReplayPauseView.as_view(), name="api-replay-pause"),
    path("api/replays/<int:pk>/resume", replays.ReplayResumeView.as_view(), name="api-replay-resume"),
    path("api/replays/<int:pk>/cancel", replays.ReplayCancelView.as_view(), name="api-replay-cancel"),
    path("api/replays/<int:pk>/retry", replays.ReplayRetryView.as_view(), name="api-replay-retry"),
    path("api/replays/<int:pk>/report.json", replays.ReplayReportView.as_view(), name="api-replay-report"),
    path("api/replays/<int:pk>/answers.jsonl", replays.ReplayAnswersView.as_view(), name="api-replay-answers"),
    path("api/replays/<int:pk>/judge", replays.ReplayJudgeView.as_view(), name="api-replay-judge"),
    path("api/replays/<int:pk>/findings", replays.ReplayFindingsView.as_view(), name="api-replay-findings"),
    path("api/replays/<int:pk>/cases", replays.ReplayCasesView.as_view(), name="api-replay-cases"),
    path("api/replays/<int:pk>/cases/<case:ref>/samples", replays.ReplaySamplesView.as_view(), name="api-samples"),
    path("api/replays/<int:pk>/cases/<case:ref>/dispute", replays.DisputeView.as_view(), name="api-dispute"),
    path("api/replays/<int:pk>/cases/<case:ref>/confirm", replays.ConfirmView.as_view(), name="api-confirm"),
    path("v1/traces", otlp.TracesView.as_view(), name="api-otlp-traces"),
    path("v1/chat/completions", gateway.elsewhere, name="gateway-completions"),
    path("v1/models", gateway.elsewhere, name="gateway-models"),
    path("v1/models/<str:name>", gateway.elsewhere, name="gateway-model"),
    path("api/schema", docs.SchemaView.as_view(), name="api-schema"),
    path("docs", docs.docs, name="api-docs"),
    path("healthz", health.healthz, name="healthz"),
]
