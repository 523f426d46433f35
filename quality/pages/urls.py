"""Pages of one tenant, under /t/<slug>/. People, roles and tokens are in people_urls."""

from django.urls import path

from quality.export import FILE_NAMES
from quality.pages import (
    bulk,
    call_list,
    calls,
    cases,
    charts,
    coach,
    exports,
    failed_traces,
    guidelines,
    imports,
    marks,
    overview,
    pending,
    proposals,
    queues,
    replay_case,
    replay_findings,
    replay_form,
    replay_schedules,
    replays,
    review,
    run,
    similar,
    suggestions,
    turns,
    views,
)

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("review/", review.review, name="review"),
    path("review/correct/", review.review_correct, name="review-correct"),
    path("review/label/", review.review_label, name="review-label"),
    path("review/undo/", review.review_undo, name="review-undo"),
    path("review/redo/", review.review_undo, {"is_redo": True}, name="review-redo"),
    path("review/advance/", review.review_advance, name="review-advance"),
    path("queues/", queues.queue_list, name="queue-list"),
    path("queues/new/", queues.queue_new, name="queue-new"),
    path("queues/preview/", queues.queue_preview, name="queue-preview"),
    path("queues/<int:pk>/", queues.queue_detail, name="queue-detail"),
    path("queues/<int:pk>/edit/", queues.queue_edit, name="queue-edit"),
    path("queues/<int:pk>/state/", queues.queue_state, name="queue-state"),
    path("queues/<int:pk>/delete/", queues.queue_delete, name="queue-delete"),
    path("queues/<int:pk>/restore/", queues.queue_restore, name="queue-restore"),
    path("queues/<int:pk>/adjudicate/", queues.queue_adjudicate, name="queue-adjudicate"),
    path("queues/<int:pk>/add/", queues.queue_add, name="queue-add"),
    path("queues/<int:pk>/entries/<int:entry>/", queues.queue_entry, name="queue-entry"),
    *[
        path(
            f"queues/<int:pk>/entries/<int:entry>/{step}/",
            queues.queue_entry_step,
            {"step": step},
            name=f"queue-entry-{step}",
        )
        for step in queues.ENTRY_STEPS
    ],
    path("queues/<int:pk>/review/", queues.queue_review, name="queue-review"),
    *[
        path(f"queues/<int:pk>/review/{step}/", queues.queue_step, {"step": step}, name=f"queue-{step}")
        for step in queues.STEPS
    ],
    path("charts/", charts.chart_page, name="chart-page"),
    *[path(f"charts/{name}.csv", charts.chart_sheet, {"name": name}, name="chart-sheet") for name in charts.SHEETS],
    path("suggestions/", suggestions.suggestion_list, name="suggestion-list"),
    path("suggestions/<int:pk>/progress/", suggestions.suggestion_progress, name="suggestion-progress"),
    *[
        path(f"suggestions/<int:pk>/{step}/", suggestions.suggestion_step, {"step": step}, name=f"suggestion-{step}")
        for step in suggestions.STEPS
    ],
    path("guidelines/", guidelines.guideline_page, name="guidelines"),
    path("guidelines/save/", guidelines.guideline_save, name="guideline-save"),
    path("calls/", call_list.call_list, name="call-list"),
    path("calls/<int:pk>/", calls.call_detail, name="call-detail"),
    *[
        path(f"calls/<int:pk>/{name}/", calls.call_evidence, {"name": name}, name=f"call-{name}")
        for name in ("args", "result", "error")
    ],
    *[
        path(f"calls/<int:pk>/{name}/branch/", calls.call_branch, {"name": name}, name="call-branch")
        for name in ("args", "result")
    ],
    path("calls/<int:pk>/similar/", similar.call_similar, name="call-similar"),
    path("items/mark/", marks.item_mark, name="item-mark"),
    path("bulk/", bulk.bulk_list, name="bulk-list"),
    path("bulk/look/", bulk.bulk_look, name="bulk-look"),
    path("bulk/<int:pk>/", bulk.bulk_detail, name="bulk-detail"),
    path("bulk/<int:pk>/progress/", bulk.bulk_progress, name="bulk-progress"),
    path("bulk/<int:pk>/confirm/", bulk.bulk_confirm, name="bulk-confirm"),
    path("bulk/<int:pk>/stop/", bulk.bulk_stop, name="bulk-stop"),
    path("bulk/<int:pk>/undo/", bulk.bulk_undo, name="bulk-undo"),
    path("views/", views.view_list, name="view-list"),
    path("views/save/", views.view_save, name="view-save"),
    *[path(f"views/<int:pk>/{step}/", views.view_step, {"step": step}, name=f"view-{step}") for step in views.STEPS],
    path("turns/", turns.turn_list, name="turn-list"),
    path("turns/<int:pk>/live/", turns.turn_live, name="turn-live"),
    path("turns/<int:pk>/events", turns.turn_events, name="turn-events"),
    path("turns/<int:pk>/stop/", turns.turn_stop, name="turn-stop"),
    path("turns/<int:pk>/go-on/", turns.turn_go_on, name="turn-go-on"),
    path("turns/<int:pk>/decide/", turns.turn_decide, name="turn-decide"),
    path("pending/", pending.pending, name="pending"),
    path("pending/decide/", pending.pending_decide, name="pending-decide"),
    path("run/", run.run, name="run"),
    path("run/<int:pk>/", run.run_turn, name="run-turn"),
    path("turns/<int:pk>/", calls.turn_detail, name="turn-detail"),
    path("turns/<int:pk>/messages/", calls.turn_messages, name="turn-messages"),
    path("turns/<int:pk>/messages/<int:position>/", calls.turn_message, name="turn-message"),
    path("imports/", imports.import_list, name="import-list"),
    path("imports/upload/", imports.import_upload, name="import-upload"),
    path("imports/traces/<int:pk>/retry/", failed_traces.trace_retry, name="trace-retry"),
    path("imports/traces/<int:pk>/delete/", failed_traces.trace_delete, name="trace-delete"),
    path("imports/<int:pk>/", imports.import_detail, name="import-detail"),
    path("imports/<int:pk>/progress/", imports.import_progress, name="import-progress"),
    path("imports/<int:pk>/format/", imports.import_format, name="import-format"),
    path("imports/<int:pk>/begin/", imports.import_begin, name="import-begin"),
    path("imports/<int:pk>/discard/", imports.import_discard, name="import-discard"),
    path("imports/<int:pk>/take-back/", imports.import_take_back, name="import-take-back"),
    path("imports/<int:pk>/issues.jsonl", imports.import_issues, name="import-issues"),
    path("export/", exports.export_page, name="export"),
    *[
        path(f"export/{name}.jsonl", exports.export_file, {"kind": kind}, name=f"export-{kind}")
        for kind, name in FILE_NAMES.items()
    ],
    path(
        "export/tool-call-feedback.csv",
        exports.export_file,
        {"kind": "feedback", "as_csv": True},
        name="export-feedback-sheet",
    ),
    path("export/order/", exports.export_order, name="export-order"),
    path("export/jobs/<int:pk>/", exports.export_detail, name="export-detail"),
    path("export/jobs/<int:pk>/progress/", exports.export_progress, name="export-progress"),
    path("export/jobs/<int:pk>/cancel/", exports.export_cancel, name="export-cancel"),
    path("export/jobs/<int:pk>/file", exports.export_fetch, name="export-fetch"),
    path("export/jobs/<int:pk>/manifest.json", exports.export_manifest, name="export-manifest"),
    path("coach/", coach.coach, name="coach"),
    path("coach/ask/", coach.coach_ask, name="coach-ask"),
    path("coach/<int:pk>/", coach.coach_run, name="coach-run"),
    path("coach/<int:pk>/preview/", coach.coach_preview, name="coach-preview"),
    path("coach/<int:pk>/decide/", coach.coach_decide, name="coach-decide"),
    path("proposals/", proposals.proposal_list, name="proposal-list"),
    path("proposals/tracked/", proposals.proposal_history, name="proposal-history"),
    path("proposals/track/", proposals.proposal_track, name="proposal-track"),
    path("proposals/<int:pk>/", proposals.proposal_detail, name="proposal-detail"),
    path("proposals/<int:pk>/dismiss/", proposals.proposal_dismiss, name="proposal-dismiss"),
    path("proposals/<int:pk>/apply/", proposals.proposal_apply, name="proposal-apply"),
    path("proposals/<int:pk>/reopen/", proposals.proposal_reopen, name="proposal-reopen"),
    path("cases/", cases.case_list, name="case-list"),
    path("cases/new/", cases.case_new, name="case-new"),
    path("cases/import/", cases.case_import, name="case-import"),
    path("cases/REG-<int:number>/", cases.case_detail, name="case-detail"),
    path("cases/REG-<int:number>/edit/", cases.case_edit, name="case-edit"),
    *[
        path(f"cases/REG-<int:number>/{step}/", cases.case_step, {"step": step}, name=f"case-{step}")
        for step in ("archive", "restore", "merge")
    ],
    path("replays/", replays.replay_list, name="replay-list"),
    path("replays/new/", replay_form.replay_new, name="replay-new"),
    path("replays/estimate/", replay_form.replay_estimate, name="replay-estimate"),
    path("replays/trends/", replays.replay_trends, name="replay-trends"),
    path("replays/<int:pk>/", replays.replay_detail, name="replay-detail"),
    path("replays/<int:pk>/progress/", replays.replay_progress, name="replay-progress"),
    path("replays/<int:pk>/report.json", replays.replay_report, name="replay-report"),
    path("replays/<int:pk>/answers.jsonl", replays.replay_answers, name="replay-answers"),
    *[
        path(f"replays/<int:pk>/{step}/", replays.replay_step, {"step": step}, name="replay-step")
        for step in ("pause", "resume", "cancel", "retry")
    ],
    path("replays/<int:pk>/REG-<int:number>/", replay_case.replay_case, name="replay-case"),
    *[
        path(
            f"replays/<int:pk>/REG-<int:number>/{kind}/",
            replay_case.replay_finding,
            {"kind": kind},
            name="replay-finding",
        )
        for kind in ("dispute", "confirm")
    ],
    path("replays/schedules/", replay_schedules.replay_schedule_list, name="replay-schedule-list"),
    path("replays/schedules/new/", replay_schedules.replay_schedule_new, name="replay-schedule-new"),
    path("replays/schedules/preview/", replay_schedules.replay_schedule_preview, name="replay-schedule-preview"),
    path("replays/schedules/<int:pk>/", replay_schedules.replay_schedule, name="replay-schedule"),
    path("replays/schedules/<int:pk>/save/", replay_schedules.replay_schedule_save, name="replay-schedule-save"),
    path("replays/schedules/<int:pk>/test/", replay_schedules.replay_schedule_test, name="replay-schedule-test"),
    *[
        path(
            f"replays/schedules/<int:pk>/{step}/",
            replay_schedules.replay_schedule_step,
            {"step": step},
            name=f"replay-schedule-{step}",
        )
        for step in replay_schedules.STEPS
    ],
    path(
        "replays/notifications/<int:pk>/again/", replay_schedules.notification_again, name="replay-notification-again"
    ),
    path("replays/disputes/", replay_findings.finding_list, name="finding-list"),
    path("replays/quarantine/", replay_findings.quarantine_list, name="quarantine-list"),
    *[
        path(
            f"replays/quarantine/<int:pk>/{step}/",
            replay_findings.quarantine_step,
            {"step": step},
            name="quarantine-step",
        )
        for step in ("accept", "dismiss")
    ],
    path("replays/quarantine/REG-<int:number>/release/", replay_findings.quarantine_release, name="quarantine-release"),
    path("replays/findings/<int:pk>/settle/", replay_case.finding_settle, name="finding-settle"),
]
