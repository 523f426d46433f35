"""Rules of masking over the API: kept, and tried on a text."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality import mask_trial
from quality.api.base import TenantView, TokenRequest, in_scope, read_body, read_query
from quality.api.problems import InvalidRequest, fault, problem
from quality.api.shapes import StrictRequest
from quality.filters import QueryForm
from tenants import masks
from tenants.masking.masker import Rule
from tenants.models import MaskRule, Scope

TAG = ["Masking"]
MAX_EXPRESSION = 500  # characters
JSON_NAMES = {
    "name": "name",
    "kind": "kind",
    "expression": "expression",
    "seen_by": "seenBy",
    "keeps_raw": "keepsRaw",
    "masks_exports": "masksExports",
    "is_enabled": "enabled",
}
NAME_HELP = "Small letters, digits and dashes: it stands in each mark, {masked:email:1a2b3c4d}."
EXPRESSION_HELP = (
    "`path`: a JSON path of names, numbers, `*` and `..`; `key`: names of members with commas between; `pattern`: a "
    "regular expression of RE2, or `preset:` and one of email, phone, card, iban, ip-address."
)
SEEN_BY_HELP = "The least role that reads the value itself."
KEEPS_RAW_HELP = "False: masked when it comes in, and never stored. What came in so cannot be brought back."
EXPORTS_HELP = "Exports hold marks, whoever orders them."
VERSION_HELP = "The one that you have before you: if the rule is another by now, yours is refused with 409 and theirs."


class MaskSerializer(serializers.Serializer):
    """A rule: what is masked, for whom."""

    id = serializers.IntegerField()
    name = serializers.CharField(help_text=NAME_HELP)
    kind = serializers.ChoiceField(choices=MaskRule.Kind.choices)
    expression = serializers.CharField(help_text=EXPRESSION_HELP)
    seenBy = serializers.ChoiceField(source="seen_by", choices=MaskRule.SeenBy.choices, help_text=SEEN_BY_HELP)
    keepsRaw = serializers.BooleanField(source="keeps_raw", help_text=KEEPS_RAW_HELP)
    masksExports = serializers.BooleanField(source="masks_exports", help_text=EXPORTS_HELP)
    enabled = serializers.BooleanField(source="is_enabled")
    version = serializers.IntegerField()
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")


class MaskListSerializer(serializers.Serializer):
    masks = MaskSerializer(many=True)


class MaskRequest(StrictRequest):
    name = serializers.CharField(max_length=32, help_text=NAME_HELP)
    kind = serializers.ChoiceField(choices=MaskRule.Kind.choices)
    expression = serializers.CharField(max_length=MAX_EXPRESSION, help_text=EXPRESSION_HELP)
    seenBy = serializers.ChoiceField(
        choices=MaskRule.SeenBy.choices, default=MaskRule.SeenBy.ADMIN, help_text=SEEN_BY_HELP
    )
    keepsRaw = serializers.BooleanField(default=True, help_text=KEEPS_RAW_HELP)
    masksExports = serializers.BooleanField(default=False, help_text=EXPORTS_HELP)
    enabled = serializers.BooleanField(default=True)


class MaskChange(StrictRequest):
    """What is to be changed; the other members stay as they are."""

    name = serializers.CharField(max_length=32, required=False, help_text=NAME_HELP)
    kind = serializers.ChoiceField(choices=MaskRule.Kind.choices, required=False)
    expression = serializers.CharField(max_length=MAX_EXPRESSION, required=False, help_text=EXPRESSION_HELP)
    seenBy = serializers.ChoiceField(choices=MaskRule.SeenBy.choices, required=False, help_text=SEEN_BY_HELP)
    keepsRaw = serializers.BooleanField(required=False, help_text=KEEPS_RAW_HELP)
    masksExports = serializers.BooleanField(required=False, help_text=EXPORTS_HELP)
    enabled = serializers.BooleanField(required=False)
    version = serializers.IntegerField(required=False, min_value=1, help_text=VERSION_HELP)


class MaskTryRequest(StrictRequest):
    """A rule that need not be kept, and what it is tried on."""

    name = serializers.RegexField(r"^[a-z0-9][a-z0-9-]{0,31}\Z", default="rule", help_text=NAME_HELP)
    kind = serializers.ChoiceField(choices=MaskRule.Kind.choices)
    expression = serializers.CharField(max_length=MAX_EXPRESSION, help_text=EXPRESSION_HELP)
    text = serializers.CharField(
        max_length=mask_trial.MAX_TEXT,
        trim_whitespace=False,
        help_text="Arguments or a result if it is an object or a list of JSON, else prose.",
    )


class MaskTrialSerializer(serializers.Serializer):
    masked = serializers.CharField(help_text="The text with marks in place of what the rule finds.")
    count = serializers.IntegerField(help_text="How many values it masks.")


class VersionForm(QueryForm):
    version = forms.IntegerField(required=False, min_value=1, max_value=2**31 - 1)


def _told(rule: MaskRule) -> dict[str, Any]:
    return dict(MaskSerializer(rule).data)


def _rule(pk: int) -> MaskRule:
    rule: MaskRule | None = MaskRule.objects.filter(pk=pk).first()
    if rule is None:
        raise Http404
    return rule


def _keep(rule: MaskRule, sent: dict[str, Any], request: TokenRequest) -> MaskRule:
    """Raises ValidationError, its fields spelled as the API does, and StaleRule."""
    for ours, theirs in JSON_NAMES.items():
        if theirs in sent:
            setattr(rule, ours, sent[theirs])
    try:
        return masks.save_rule(rule, actor=request.user, token=request.auth, version=sent.get("version"))
    except ValidationError as error:
        if not hasattr(error, "error_dict"):
            raise
        faults = {JSON_NAMES.get(name, name): list(found) for name, found in error.error_dict.items()}
        raise ValidationError(faults) from error
    except MaskRule.DoesNotExist as error:
        raise Http404 from error


def _stale(stale: masks.StaleRule) -> HttpResponse:
    now = _told(stale.current)
    errors = [fault("version", "stale", f"The rule is at version {now['version']} now.")]
    return problem(409, "stale_mask", "Somebody changed the rule meanwhile.", errors=errors, current=now)


_STALE = OpenApiResponse(description="The rule is at another version by now; `current` is what it is.")


class MasksView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listMasks", tags=TAG, responses=MaskListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The rules of masking by name."""
        return Response({"masks": [_told(rule) for rule in MaskRule.objects.order_by("name")]})

    @extend_schema(operation_id="createMask", tags=TAG, request=MaskRequest, responses={201: MaskSerializer})
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Make a rule. It holds from the next request on."""
        rule = _keep(MaskRule(), read_body(MaskRequest, request), request)
        return Response(_told(rule), status=201, headers={"Location": f"{request.path}/{rule.pk}"})


class MaskView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getMask", tags=TAG, responses=MaskSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """A rule of masking."""
        return Response(_told(_rule(pk)))

    @extend_schema(
        operation_id="changeMask", tags=TAG, request=MaskChange, responses={200: MaskSerializer, 409: _STALE}
    )
    @in_scope
    def patch(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Change a rule, or switch it off and on with `enabled`."""
        try:
            return Response(_told(_keep(_rule(pk), read_body(MaskChange, request), request)))
        except masks.StaleRule as stale:
            return _stale(stale)

    @extend_schema(
        operation_id="deleteMask",
        tags=TAG,
        parameters=[OpenApiParameter("version", int, description=VERSION_HELP)],
        responses={204: OpenApiResponse(description="It is deleted."), 409: _STALE},
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Delete a rule. What it masked is read again, but for what came in while it stored nothing."""
        version = read_query(VersionForm, request).cleaned_data["version"]
        try:
            masks.delete_rule(_rule(pk), actor=request.user, token=request.auth, version=version)
        except MaskRule.DoesNotExist as error:
            raise Http404 from error
        except masks.StaleRule as stale:
            return _stale(stale)
        return Response(status=204)


class MaskTryView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="tryMask", tags=TAG, request=MaskTryRequest, responses=MaskTrialSerializer)
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """See what a rule makes of a text. Nothing is kept."""
        sent = read_body(MaskTryRequest, request)
        expression = sent["expression"].strip()
        if reason := masks.fault_of(sent["kind"], expression):
            raise InvalidRequest([fault("expression", "invalid", reason)])
        rule = Rule(name=sent["name"], kind=sent["kind"], expression=expression)
        trial = mask_trial.try_text(masks.try_out([rule]), sent["text"])
        return Response({"masked": trial.masked, "count": trial.total})
