"""The tenant's guidelines for reviewers."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.problems import fault, problem
from quality.api.shapes import Person, StrictRequest
from quality.improve import guidelines
from quality.models import GuidelineVersion
from tenants.models import Scope


class GuidelineSerializer(serializers.Serializer):
    number = serializers.IntegerField(min_value=0, help_text="From 1; 0 before the first.")
    text = serializers.CharField(allow_blank=True, help_text="Markdown.")
    by = Person(allow_null=True)
    at = serializers.DateTimeField(allow_null=True)


class GuidelineRequest(StrictRequest):
    """`version` is the number that you have before you, 0 for none: if another was written meanwhile, yours is refused
    with 409 and theirs. Without it nothing is compared."""

    text = serializers.CharField(trim_whitespace=False, max_length=guidelines.MAX_CHARS, help_text="Markdown.")
    version = serializers.IntegerField(required=False, allow_null=True, min_value=0)


def shown(version: GuidelineVersion | None) -> dict[str, Any]:
    if version is None:
        return {"number": 0, "text": "", "by": None, "at": None}
    return dict(GuidelineSerializer(version).data)


class GuidelinesView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getGuidelines", tags=["Feedback"], responses=GuidelineSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The guidelines that hold. Each label keeps the number of those it was given under."""
        return Response(shown(guidelines.newest()))

    @extend_schema(
        operation_id="writeGuidelines", tags=["Feedback"], request=GuidelineRequest, responses=GuidelineSerializer
    )
    @in_scope
    def put(self, request: TokenRequest) -> Any:
        """Write a new version. The same text again makes none."""
        wanted = read_body(GuidelineRequest, request)
        try:
            made, _ = guidelines.write(
                text=wanted["text"], by=request.user, seen_number=wanted.get("version"), token=request.auth
            )
        except guidelines.StaleGuidelines as stale:
            now = shown(stale.newest)
            errors = [fault("version", "stale", f"The guidelines are at version {now['number']} now.")]
            return problem(409, "stale_guidelines", str(stale), errors=errors, current=now)
        return Response(shown(made))
