"""Review queues over the API: kept, filled, and how far they are."""
# mypy: disable-error-code="assignment"
# (a field may be called `label`: REST framework takes declared fields off the class)

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import Http404, QueryDict
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_body, read_query
from quality.api.problems import InvalidRequest, fault
from quality.api.shapes import LabelField, Person, StrictRequest
from quality.filters import CallFilterForm, ListField, QueryForm
from quality.models import Assignment, QueueEntry, ReviewQueue
from quality.models.queues import MAX_LABELS_NEEDED
from quality.review import blind
from quality.review.queues import adding, adjudication, claiming, listing, making, people, progress
from quality.review.sources import PARTS
from tenants.models import Scope, User

TAG = ["Review queues"]
MAX_IDS = 2_000  # of one request
JSON_NAMES = {
    "sample_rate": "sampleRate",
    "ordering": "order",
    "labels_needed": "labelsNeeded",
    "is_blind": "blind",
    "counts_earlier": "countsEarlier",
    "query": "filter",
    "fields": "parts",
}
FILTER_HELP = (
    "Of a rule: a filter as a query string of GET /api/admin/quality/tool-calls, such as tool=refund&error=yes."
)
REVIEWERS_HELP = "E-mail addresses or names of members; none: everyone who may label."


# --- shapes -----------------------------------------------------------------------------------------------------------
class QueueProgressSerializer(serializers.Serializer):
    """`labelsLeft`: those that the open entries still need; `held`: entries that somebody is at work on."""

    open = serializers.IntegerField()
    done = serializers.IntegerField()
    removed = serializers.IntegerField()
    agreed = serializers.IntegerField()
    disagreed = serializers.IntegerField()
    labelsLeft = serializers.IntegerField(source="labels_left")
    held = serializers.IntegerField()
    finished = serializers.BooleanField(source="is_finished")


class QueueShareSerializer(serializers.Serializer):
    reviewer = Person()
    isReviewer = serializers.BooleanField(source="is_reviewer", help_text="False: not any more.")
    done = serializers.IntegerField()
    pending = serializers.IntegerField()
    skipped = serializers.IntegerField()
    sentBack = serializers.IntegerField(source="sent_back")
    today = serializers.IntegerField()
    perHour = serializers.FloatField(
        source="per_hour", allow_null=True, help_text="Labels in an hour with any, of the last 14 days."
    )
    medianSeconds = serializers.FloatField(
        source="median_s", allow_null=True, help_text="From the screen to the label."
    )
    lastAt = serializers.DateTimeField(source="last_at", allow_null=True)


class QueueDaySerializer(serializers.Serializer):
    day = serializers.DateField()
    added = serializers.IntegerField()
    done = serializers.IntegerField()
    left = serializers.IntegerField()


class QueueAddingSerializer(serializers.Serializer):
    """What a worker adds: `seen` calls so far, `added` of them new."""

    seen = serializers.IntegerField()
    added = serializers.IntegerField()
    done = serializers.BooleanField(default=False)
    failure = serializers.CharField(default="")


class WholeProgressSerializer(serializers.Serializer):
    progress = QueueProgressSerializer()
    reviewers = QueueShareSerializer(many=True)
    days = QueueDaySerializer(many=True)
    adding = QueueAddingSerializer(allow_null=True)


class QueueSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=ReviewQueue.Kind.choices)
    state = serializers.ChoiceField(choices=ReviewQueue.State.choices)
    filter = serializers.CharField(source="query", help_text=FILTER_HELP)
    sampleRate = serializers.FloatField(source="sample_rate")
    ofQueue = serializers.IntegerField(source="of_queue_id", allow_null=True, help_text="Whose disagreements it has.")
    order = serializers.ChoiceField(source="ordering", choices=ReviewQueue.Order.choices)
    labelsNeeded = serializers.IntegerField(source="labels_needed")
    blind = serializers.BooleanField(source="is_blind")
    countsEarlier = serializers.BooleanField(source="counts_earlier")
    everyone = serializers.BooleanField(source="for_everyone")
    reviewers = serializers.SerializerMethodField(help_text="Named ones.")
    guidelines = serializers.CharField()
    parts = serializers.ListField(
        source="fields", child=serializers.ChoiceField(choices=PARTS), help_text="Parts shown; none: all of them."
    )
    progress = serializers.SerializerMethodField()
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")

    def get_reviewers(self, queue: ReviewQueue) -> list[str]:
        return [] if queue.for_everyone else [user.email for user in people.reviewers_of(queue)]

    @extend_schema_field(QueueProgressSerializer)
    def get_progress(self, queue: ReviewQueue) -> dict[str, Any]:
        return dict(QueueProgressSerializer(self.context["progress"][queue.pk]).data)


class QueueListSerializer(serializers.Serializer):
    queues = QueueSerializer(many=True)


class QueueChange(StrictRequest):
    """What is not there stays as it is. `state`: open, paused (it does not fill) or closed (it serves nothing)."""

    name = serializers.CharField(max_length=120, required=False)
    state = serializers.ChoiceField(choices=ReviewQueue.State.choices, required=False)
    filter = serializers.CharField(max_length=8_000, required=False, allow_blank=True, help_text=FILTER_HELP)
    sampleRate = serializers.FloatField(required=False, help_text="Of a rule: share that is taken, to 1.")
    order = serializers.ChoiceField(choices=ReviewQueue.Order.choices, required=False)
    labelsNeeded = serializers.IntegerField(min_value=1, max_value=MAX_LABELS_NEEDED, required=False)
    blind = serializers.BooleanField(required=False)
    countsEarlier = serializers.BooleanField(required=False)
    reviewers = serializers.ListField(
        child=serializers.CharField(max_length=254), max_length=500, required=False, help_text=REVIEWERS_HELP
    )
    guidelines = serializers.CharField(
        max_length=making.MAX_GUIDELINES_CHARS, required=False, allow_blank=True, help_text="Markdown."
    )
    parts = serializers.ListField(
        child=serializers.ChoiceField(choices=PARTS), required=False, help_text="Parts shown; none: all of them."
    )


class QueueRequest(QueueChange):
    name = serializers.CharField(max_length=120)
    kind = serializers.ChoiceField(
        choices=[ReviewQueue.Kind.RULE, ReviewQueue.Kind.FIXED],
        help_text="rule: it fills by its filter as calls arrive; fixed: you add to it.",
    )


class QueueAnswerSerializer(serializers.Serializer):
    """What one reviewer did. `label` is null until he labelled it, and while others' answers are hidden from you."""

    reviewer = Person()
    state = serializers.ChoiceField(choices=Assignment.State.choices)
    label = LabelField(allow_null=True)
    note = serializers.CharField(help_text="Why it was skipped, sent back or handed over.")
    updatedAt = serializers.DateTimeField(source="updated_at")


class QueueEntrySerializer(serializers.Serializer):
    id = serializers.IntegerField()
    callId = serializers.IntegerField(source="call_id", allow_null=True, help_text="Null: a reply without a call.")
    turnId = serializers.IntegerField(source="turn_id")
    cycle = serializers.IntegerField()
    toolName = serializers.CharField(source="tool_name")
    startedAt = serializers.DateTimeField(source="started_at")
    state = serializers.ChoiceField(choices=QueueEntry.State.choices)
    numLabels = serializers.IntegerField(source="num_labels")
    labelsNeeded = serializers.IntegerField(source="labels_needed")
    agreed = serializers.BooleanField(allow_null=True, help_text="Null: not done, or one alone labelled it.")
    priority = serializers.IntegerField()
    why = serializers.DictField(help_text="Of the order useful: the parts of the score, by name.")
    addedAt = serializers.DateTimeField(source="added_at")
    doneAt = serializers.DateTimeField(source="done_at", allow_null=True)
    answers = QueueAnswerSerializer(source="given", many=True)


class QueueEntryPageSerializer(serializers.Serializer):
    items = QueueEntrySerializer(many=True)
    nextCursor = serializers.CharField(allow_null=True)


class EntryListForm(QueryForm):
    state = forms.ChoiceField(required=False, choices=QueueEntry.State.choices)
    tools = ListField(required=False)
    agreed = forms.ChoiceField(required=False, choices=[(one, one) for one in listing.AGREED])
    reviewer = forms.CharField(required=False, max_length=254)
    assignment = forms.ChoiceField(required=False, choices=Assignment.State.choices)
    cursor = forms.CharField(required=False, max_length=200)
    page_size = forms.IntegerField(required=False, min_value=1, max_value=listing.MAX_PAGE_SIZE)


class AddRequest(StrictRequest):
    """Calls by id, turns (their last reply) by id, or all that a filter lets through now. A filter of many goes to a
    worker: `progress` says how far it is."""

    calls = serializers.ListField(child=serializers.IntegerField(min_value=1), max_length=MAX_IDS, required=False)
    turns = serializers.ListField(child=serializers.IntegerField(min_value=1), max_length=MAX_IDS, required=False)
    filter = serializers.CharField(max_length=8_000, required=False, allow_blank=True, help_text=FILTER_HELP)
    limit = serializers.IntegerField(
        min_value=1, max_value=adding.MAX_ENTRIES, required=False, help_text="Of a filter: the newest so many."
    )


class AddedSerializer(serializers.Serializer):
    added = serializers.IntegerField(allow_null=True, help_text="New in the queue; null: a worker is at it.")
    missing = serializers.ListField(child=serializers.CharField(), help_text="What there is none of.")


# --- reading ----------------------------------------------------------------------------------------------------------
def _queue(pk: int) -> ReviewQueue:
    try:
        return making.queue_of(pk)
    except ReviewQueue.DoesNotExist as error:
        raise Http404 from error


def _told(queues: list[ReviewQueue]) -> list[dict[str, Any]]:
    return list(QueueSerializer(queues, many=True, context={"progress": progress.of_queues(queues)}).data)


def _filter(text: str) -> CallFilterForm:
    """The filter of a query string; raises InvalidRequest with each fault."""
    form = CallFilterForm(QueryDict(text))
    faults = form.faults() + [
        fault("filter", "unknown_parameter", f"{name} is no parameter of a filter.") for name in form.unknown()
    ]
    if faults:
        raise InvalidRequest([fault("filter", one["code"], one["message"]) for one in faults])
    return form


def _reviewers(words: list[str]) -> tuple[int, ...]:
    found, unknown = people.found_members(words)
    if unknown:
        raise InvalidRequest(
            [
                fault("reviewers", "unknown_member", f"{word!r} is no member who may label, or more than one.")
                for word in unknown
            ]
        )
    return tuple(user.pk for user in found)


def _keep(sent: dict[str, Any], request: TokenRequest, queue: ReviewQueue | None = None) -> ReviewQueue:
    """Raises ValidationError, its fields spelled as the API does."""
    names = {json_name: name for name, json_name in JSON_NAMES.items()}
    said = {names.get(name, name): value for name, value in sent.items() if name != "state"}
    if "query" in said:
        _filter(said["query"])
    if "reviewers" in said:
        said["reviewers"] = _reviewers(said["reviewers"])
    if "fields" in said:
        said["fields"] = tuple(said["fields"])
    if queue is not None:
        # Of two changes of different parts at once, none writes the other's part as it was before.
        queue = ReviewQueue.objects.select_for_update(no_key=True).get(pk=queue.pk)
        kept = making.data_of(queue)
        said = {name: getattr(kept, name) for name in making.QueueData.__slots__} | said
    try:
        kept_queue = making.keep_queue(
            making.QueueData(**said), actor=request.user, token=request.auth, pk=queue.pk if queue else None
        )
    except ValidationError as error:
        if not hasattr(error, "error_dict"):
            raise
        spelled = {JSON_NAMES.get(name, name): list(found) for name, found in error.error_dict.items()}
        raise ValidationError(spelled) from error
    if state := sent.get("state"):
        kept_queue = making.set_state(kept_queue, state, actor=request.user, token=request.auth)
    return kept_queue


class QueuesView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listReviewQueues", tags=TAG, responses=QueueListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The review queues of the tenant, by name, with their progress."""
        return Response({"queues": _told(making.queues())})

    @extend_schema(operation_id="createReviewQueue", tags=TAG, request=QueueRequest, responses={201: QueueSerializer})
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Make a review queue. One that fills by a rule takes what comes in from now on."""
        return Response(_told([_keep(read_body(QueueRequest, request), request)])[0], status=201)


class QueueView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getReviewQueue", tags=TAG, responses=QueueSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """A review queue with its progress."""
        return Response(_told([_queue(pk)])[0])

    @extend_schema(operation_id="changeReviewQueue", tags=TAG, request=QueueChange, responses=QueueSerializer)
    @in_scope
    def patch(self, request: TokenRequest, pk: int) -> Response:
        """Change a queue, or pause, open and close it with `state`. Entries that are done stay done."""
        queue = _queue(pk)
        return Response(_told([_keep(read_body(QueueChange, request), request, queue)])[0])

    @extend_schema(
        operation_id="deleteReviewQueue",
        tags=TAG,
        responses={204: OpenApiResponse(description="It is deleted; people can bring it back for 30 days.")},
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a closed queue. The labels that were given in it stay."""
        try:
            making.delete_queue(_queue(pk), actor=request.user, token=request.auth)
        except making.NotClosed as error:
            raise InvalidRequest([fault("state", "not_closed", str(error))]) from error
        return Response(status=204)


class QueueProgressView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="getReviewQueueProgress", tags=TAG, responses=WholeProgressSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """How far a queue is: as a whole, by reviewer, and day by day (UTC)."""
        queue = _queue(pk)
        told = {
            "progress": progress.of_queue(queue),
            "reviewers": progress.by_reviewer(queue),
            "days": progress.days(queue),
            "adding": queue.backfill or None,
        }
        return Response(WholeProgressSerializer(told).data)


class QueueAdjudicationView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="collectDisagreements", tags=TAG, request=None, responses={200: QueueSerializer})
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """The queue that collects this one's disagreements, made if there is none."""
        queue = _queue(pk)
        try:
            made = adjudication.make(queue, actor=request.user, token=request.auth)
        except ValidationError as error:
            raise InvalidRequest([fault("id", "is_adjudication", " ".join(error.messages))]) from error
        return Response(_told([made])[0])


def _text(name: str, description: str = "", **options: Any) -> OpenApiParameter:
    return OpenApiParameter(name, OpenApiTypes.STR, description=description, **options)


class QueueEntriesView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(
        operation_id="listReviewQueueEntries",
        tags=TAG,
        parameters=[
            _text("state", "open by default.", enum=QueueEntry.State.values),
            _text("tools", "May repeat: any of these.", many=True),
            _text("agreed", enum=list(listing.AGREED)),
            _text("reviewer", "E-mail address or name of who did anything there."),
            _text("assignment", "What was done.", enum=Assignment.State.values),
            _text("cursor", "From nextCursor of another page."),
            OpenApiParameter("page_size", OpenApiTypes.INT, description="1 to 200; 50 by default."),
        ],
        responses=QueueEntryPageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """The entries of a queue in the order in which they are served, with what reviewers did."""
        queue = _queue(pk)
        form = read_query(EntryListForm, request)
        data = form.cleaned_data
        reviewer = next(iter(_reviewers([data["reviewer"]])), None) if data["reviewer"] else None
        wanted = listing.EntryFilter(
            state=data["state"] or QueueEntry.State.OPEN,
            tools=data["tools"],
            agreed=data["agreed"],
            reviewer=reviewer,
            assignment=data["assignment"],
        )
        try:
            page = listing.find(queue, wanted, cursor=data["cursor"], page_size=data["page_size"] or listing.PAGE_SIZE)
        except listing.BadCursor as error:
            raise InvalidRequest([fault("cursor", "bad_cursor", str(error))]) from error
        _veil(page.rows, request.user)
        return Response({"items": QueueEntrySerializer(page.rows, many=True).data, "nextCursor": page.next})

    @extend_schema(operation_id="addToReviewQueue", tags=TAG, request=AddRequest, responses=AddedSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Put calls into a queue, by id or by a filter as of now. What is in it already stays as it is."""
        queue = _queue(pk)
        sent = read_body(AddRequest, request)
        if ("filter" in sent) == bool(sent.get("calls") or sent.get("turns")):
            raise InvalidRequest([fault("calls", "one_of", "Give ids (calls, turns), or a filter.")])
        try:
            if "filter" in sent:
                return Response({"added": _add_matching(queue, sent, request), "missing": []})
            items, missing = adding.items_of(sent.get("calls", []), sent.get("turns", []))
            added = adding.add_items(queue, items, actor=request.user, token=request.auth)
        except adding.QueueClosed as error:
            raise InvalidRequest([fault("state", "closed", str(error))]) from error
        except adding.QueueFull as error:
            raise InvalidRequest([fault("calls", "queue_full", " ".join(error.messages))]) from error
        return Response({"added": added, "missing": missing})


def _add_matching(queue: ReviewQueue, sent: dict[str, Any], request: TokenRequest) -> int | None:
    wanted = adding.frozen(_filter(sent["filter"]).wanted)
    limit = sent.get("limit")
    if min(adding.count(wanted), limit or adding.MAX_ENTRIES) <= adding.MAX_AT_ONCE:
        return adding.add_matching(queue, wanted, request.user, limit, token=request.auth)
    adding.order(queue, wanted, actor=request.user, limit=limit, token=request.auth)
    return None


def _veil(entries: list[Any], user: User) -> None:
    """Take away what this user must not see yet."""
    hidden = blind.hidden_from(user, [claiming.item_of(entry) for entry in entries])
    for entry in entries:
        if claiming.item_of(entry) in hidden:
            entry.why = {name: part for name, part in entry.why.items() if name != "disagreement"}
            for one in entry.given:
                one.label = one.label if one.reviewer_id == user.pk else None


class QueueEntryView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(
        operation_id="removeReviewQueueEntry",
        tags=TAG,
        responses={204: OpenApiResponse(description="It is taken out. Labels that were given stay.")},
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int, entry: int) -> Response:
        """Take an entry out of a queue: nobody is served it, no rule brings it back."""
        found = QueueEntry.objects.select_related("queue").filter(pk=entry, queue=_queue(pk)).first()
        if found is None:
            raise Http404
        adding.take_out(found, actor=request.user, token=request.auth)
        return Response(status=204)
