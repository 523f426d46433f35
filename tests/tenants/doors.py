"""Who may do what at each route: a new one is a decision, taken here (`test_every_door.py` asks them all).

Pages by the least role that reads and the least that writes; "-" is a method that the page does not take. Routes of the
API by method and the scope that it asks for.
"""

PAGES: dict[tuple[str, str], str] = {
    ("-", "admin"): (
        "booking-remove booking-set coach-decide databases-choose export-cancel export-order guideline-save "
        "info-save invitation-create invitation-revoke limits-set mask-count mask-delete mask-switch mask-try "
        "mask-undo member-remove member-role model-create model-delete model-save model-test queue-add "
        "queue-adjudicate queue-delete queue-entry-put-back queue-entry-reopen queue-entry-take-out queue-restore "
        "queue-state rate-delete rate-save replay-notification-again replay-schedule-delete replay-schedule-pause "
        "replay-schedule-preview replay-schedule-resume replay-schedule-rotate replay-schedule-run "
        "replay-schedule-save replay-schedule-test requisites-save schedule-create schedule-delete "
        "schedule-preview schedule-run schedule-save schedule-switch scripts-switch secret-delete secret-set "
        "skill-delete skill-save style-create style-delete style-restore style-save suggestion-cancel "
        "suggestion-delete token-create token-revoke tool-check tool-create tool-delete tool-enable tool-restore "
        "tool-save tool-switch tool-try tools-import webhook-again webhook-delete webhook-repeat webhook-rotate "
        "webhook-test "
    ),
    ("-", "operator"): (
        "bulk-confirm bulk-look bulk-stop bulk-undo case-archive case-edit case-merge case-restore coach-ask "
        "customer-save finding-settle import-begin import-discard import-format import-take-back import-upload "
        "item-mark order-cancel order-paid pending-decide proposal-apply proposal-dismiss proposal-reopen "
        "proposal-track quarantine-release quarantine-step queue-hand-over queue-send-back queue-skip queue-unskip "
        "replay-estimate replay-finding replay-step review-advance review-label review-redo review-undo "
        "trace-delete trace-retry turn-decide turn-go-on turn-stop "
    ),
    ("-", "viewer"): (
        "coach-preview view-begin view-delete view-not-begin view-pin view-rename view-restore view-save "
        "view-share view-unpin view-unshare view-update "
    ),
    ("admin", "-"): (
        "audit-list export export-calls export-cases export-detail export-feedback export-feedback-sheet "
        "export-fetch export-manifest export-progress export-proposals model-edit model-new queue-preview "
        "replay-answers schedule-new secret-list style-new token-list tool-edit tool-new tools-export "
    ),
    ("admin", "admin"): ("mask-detail mask-new queue-edit queue-new replay-schedule-new webhook-detail webhook-list "),
    ("operator", "-"): ("review-correct reviewer reviewers reviewers-sheet run-turn "),
    ("operator", "operator"): ("case-import case-new replay-new run "),
    ("viewer", "-"): (
        "agreement agreement-apart agreement-confusion agreement-hints agreement-judge agreement-judge-sheet "
        "agreement-labels agreement-pairs agreement-suggestions agreement-summary booking bulk-detail bulk-list "
        "bulk-progress call-args call-branch call-detail call-error call-list call-result call-similar case-detail "
        "case-list chart-page chart-sheet coach coach-run exchange finding-list guidelines import-detail "
        "import-issues import-list import-progress mask-list member-list model-list overview pending "
        "proposal-detail proposal-history proposal-list quarantine-list queue-detail queue-entry queue-list "
        "queue-review replay-case replay-detail replay-list replay-progress replay-report replay-schedule "
        "replay-schedule-list replay-trends review schedule-detail schedule-list style-detail style-list "
        "suggestion-progress tool-detail tool-list turn-detail turn-events turn-list turn-live turn-message "
        "turn-messages view-list "
    ),
    ("viewer", "admin"): ("suggestion-list "),
}
API: dict[tuple[tuple[str, str], ...], str] = {
    (("DELETE", "settings:write"),): ("api-model api-queue-entry api-rate api-secret api-skill "),
    (("GET", "export:read"),): (
        "api-cases-export api-feedback-export api-feedback-sheet api-proposals-export api-replay-answers "
        "api-tool-calls-export "
    ),
    (("GET", "read"),): (
        "api-agreement api-bulk-action api-bulk-report api-case-versions api-coach-run api-feedback-groups "
        "api-feedback-summary api-open-disputes api-orders api-proposal api-queue-progress api-replay "
        "api-replay-cases api-replay-findings api-replay-judge api-replay-notifications api-replay-report "
        "api-samples api-suggestions api-tags api-tool-call api-tool-call-similar api-tool-calls api-tools "
        "api-turn api-turn-events api-webhook-deliveries "
    ),
    (("GET", "read"), ("DELETE", "settings:write")): ("api-style api-suggestion-run "),
    (("GET", "read"), ("PATCH", "feedback:write")): ("api-case "),
    (("GET", "read"), ("PATCH", "feedback:write"), ("DELETE", "feedback:write")): ("api-saved-view "),
    (("GET", "read"), ("PATCH", "settings:write")): ("api-limits "),
    (("GET", "read"), ("PATCH", "settings:write"), ("DELETE", "settings:write")): (
        "api-queue api-replay-schedule api-schedule api-webhook "
    ),
    (("GET", "read"), ("POST", "feedback:write")): ("api-bulk-actions api-cases api-proposals api-saved-views "),
    (("GET", "read"), ("POST", "feedback:write"), ("DELETE", "feedback:write")): ("api-tool-call-tags api-turn-tags "),
    (("GET", "read"), ("POST", "replays:write")): ("api-replays "),
    (("GET", "read"), ("POST", "settings:write")): (
        "api-databases api-models api-queue-entries api-queues api-replay-schedules api-schedules api-scripts "
        "api-skills api-styles api-suggestion-runs api-webhooks "
    ),
    (("GET", "read"), ("POST", "settings:write"), ("DELETE", "settings:write")): ("api-active-tools api-booking "),
    (("GET", "read"), ("PUT", "settings:write")): ("api-guidelines "),
    (("GET", "settings:write"), ("PATCH", "settings:write")): ("api-exchange "),
    (("GET", "settings:write"), ("PATCH", "settings:write"), ("DELETE", "settings:write")): ("api-mask "),
    (("GET", "settings:write"), ("POST", "settings:write")): ("api-customers api-kept-tools api-masks api-secrets "),
    (("PATCH", "settings:write"), ("DELETE", "settings:write")): ("api-kept-tool "),
    (("POST", "feedback:write"),): (
        "api-bulk-confirm api-bulk-stop api-bulk-undo api-case-archive api-case-merge api-case-restore "
        "api-cases-import api-coach api-proposal-apply api-proposal-case api-proposal-dismiss api-proposal-reopen "
        "api-saved-view-restore api-tool-call-archive api-tool-call-feedback api-tool-call-restore "
        "api-tool-call-undo api-turn-archive api-turn-feedback api-turn-restore api-turn-undo "
    ),
    (("POST", "ingest:write"),): ("api-ingest-tool-calls api-otlp-traces "),
    (("POST", "read"),): ("api-case-judge api-replay-estimate "),
    (("POST", "replays:write"),): (
        "api-confirm api-dispute api-finding-settle api-replay-cancel api-replay-pause api-replay-resume "
        "api-replay-retry api-replay-schedule-run "
    ),
    (("POST", "settings:write"),): (
        "api-mask-try api-model-test api-order-cancel api-order-paid api-queue-adjudication api-rates "
        "api-requisites api-schedule-run api-style-restore api-suggestion-run-cancel api-tool-switch "
        "api-webhook-again api-webhook-test "
    ),
    (("POST", "turns:write"),): ("api-turn-cancel api-turn-tool-results api-turns "),
}

# Of no tenant: everybody's own account, ways in, choices of a browser, what is served to all.
OF_NOBODY = {
    "home", "signin", "signin-once", "signout", "account", "account-keys", "invitation", "theme", "language", "zone",
    "api-schema", "api-docs", "healthz",
}  # fmt: skip
# The gateway's own application answers them, and tests/gateway asks.
ELSEWHERE = {"gateway-completions", "gateway-models", "gateway-model"}
