"""Models of a tenant over the API. Keys go in and never come out."""
# mypy: disable-error-code="assignment"
# (a field may be called `label` or `source`: REST framework takes declared fields off the class)

import asyncio
from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.problems import InvalidRequest, fault
from quality.turns import breaker
from tenants import endpoints, outbound
from tenants.envelope import NoKeys, SecretInvalid
from tenants.models import ModelEndpoint, Scope
from tenants.probe import probe_endpoint
from tenants.scope import tenant_scope


class ModelSerializer(serializers.ModelSerializer):
    """An endpoint, its key by fingerprint alone."""

    baseUrl = serializers.CharField(source="base_url")
    pricePrompt = serializers.FloatField(source="price_prompt")
    priceCompletion = serializers.FloatField(source="price_completion")
    enabled = serializers.BooleanField(source="is_enabled")
    standIn = serializers.BooleanField(source="is_stand_in")
    repairsTextCalls = serializers.BooleanField(source="repairs_text_calls")
    asksAgainWhenEmpty = serializers.BooleanField(source="asks_again_when_empty")
    checksArguments = serializers.BooleanField(source="checks_arguments")
    keyFingerprint = serializers.CharField(source="key.fingerprint", default=None, allow_null=True)
    keySetAt = serializers.DateTimeField(source="key.set_at", default=None, allow_null=True)
    numFailures = serializers.IntegerField(source="standing.num_failures", default=0, help_text="In a row, by now.")
    pausedUntil = serializers.DateTimeField(
        source="standing.until_at", default=None, allow_null=True, help_text="Its turns fail until then."
    )
    updatedAt = serializers.DateTimeField(source="updated_at")

    class Meta:
        model = ModelEndpoint
        fields = (
            "id", "label", "baseUrl", "model", "parameters", "pricePrompt", "priceCompletion", "sources", "enabled",
            "standIn", "repairsTextCalls", "asksAgainWhenEmpty", "checksArguments", "keyFingerprint", "keySetAt",
            "numFailures", "pausedUntil", "updatedAt",
        )  # fmt: skip


class ModelListSerializer(serializers.Serializer):
    models = ModelSerializer(many=True)


class ModelRequest(serializers.Serializer):
    """What an endpoint is to be. A label that exists is changed; without `key` its key stays, "" takes it away."""

    label = serializers.CharField(max_length=40)
    baseUrl = serializers.CharField(max_length=2000)
    model = serializers.CharField(max_length=200)
    key = serializers.CharField(max_length=4000, required=False, allow_blank=True, write_only=True)
    parameters = serializers.DictField(required=False, default=dict)
    pricePrompt = serializers.FloatField(required=False, default=0.0, min_value=0)
    priceCompletion = serializers.FloatField(required=False, default=0.0, min_value=0)
    sources = serializers.ListField(child=serializers.CharField(max_length=100), required=False, default=list)
    enabled = serializers.BooleanField(required=False, default=True)
    repairsTextCalls = serializers.BooleanField(
        required=False, default=True, help_text="Gateway: calls that come as text become tool calls."
    )
    asksAgainWhenEmpty = serializers.BooleanField(
        required=False, default=True, help_text="Gateway: a stream that comes empty is asked for once more, whole."
    )
    checksArguments = serializers.BooleanField(
        required=False, default=True, help_text="Gateway: arguments that do not fit the tool's schema are noted."
    )


class FindingSerializer(serializers.Serializer):
    what = serializers.CharField()
    verdict = serializers.ChoiceField(choices=["yes", "no", "warn"])
    detail = serializers.CharField()


class ProbeSerializer(serializers.Serializer):
    """How a model answered one request and one question that needs a tool."""

    works = serializers.BooleanField()
    durationMs = serializers.IntegerField(source="duration_ms")
    findings = FindingSerializer(many=True)


class ModelsView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listModels", tags=["Models"], responses=ModelListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The models that may answer turns of this tenant."""
        found: list[Any] = list(ModelEndpoint.objects.select_related("key").order_by("label"))
        standings = breaker.standings({row.pk: breaker.server_of(row) for row in found})
        for row in found:
            row.standing = standings[row.pk]
        return Response({"models": ModelSerializer(found, many=True).data})

    @extend_schema(operation_id="saveModel", tags=["Models"], request=ModelRequest, responses=ModelSerializer)
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Make a model, or change the one with this label. Takes effect at the next turn."""
        wanted = read_body(ModelRequest, request)
        data = endpoints.EndpointData(
            label=wanted["label"],
            base_url=wanted["baseUrl"],
            model=wanted["model"],
            key=wanted.get("key"),
            parameters=wanted["parameters"],
            price_prompt=wanted["pricePrompt"],
            price_completion=wanted["priceCompletion"],
            sources=tuple(wanted["sources"]),
            is_enabled=wanted["enabled"],
            repairs_text_calls=wanted["repairsTextCalls"],
            asks_again_when_empty=wanted["asksAgainWhenEmpty"],
            checks_arguments=wanted["checksArguments"],
        )
        known = ModelEndpoint.objects.filter(label=data.label).first()
        try:
            saved = endpoints.save_endpoint(
                data, actor=request.user, token=request.auth, pk=known.pk if known is not None else None
            )
        except NoKeys as error:
            raise InvalidRequest([fault("key", "no_keys", str(error))]) from error
        row: Any = ModelEndpoint.objects.select_related("key").get(pk=saved.pk)
        row.standing = breaker.standings({row.pk: breaker.server_of(row)})[row.pk]
        return Response(ModelSerializer(row).data)


class ModelView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(
        operation_id="deleteModel", tags=["Models"], responses={204: OpenApiResponse(description="It is deleted.")}
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a model and its key."""
        endpoint = ModelEndpoint.objects.select_related("key").filter(pk=pk).first()
        if endpoint is None:
            raise Http404
        endpoints.delete_endpoint(endpoint=endpoint, actor=request.user, token=request.auth)
        return Response(status=204)


class ModelTestView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="testModel", tags=["Models"], request=None, responses=ProbeSerializer)
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Ask a model once plainly and once with a tool, and say what its server supports. An answer ends a pause."""
        with tenant_scope(request.auth.tenant):
            endpoint = ModelEndpoint.objects.filter(pk=pk).first()
            if endpoint is None:
                raise Http404
            try:
                key = endpoints.read_key(endpoint.pk, run="test over the API")
            except SecretInvalid as error:
                raise InvalidRequest([fault("key", error.code, str(error))]) from error
            guard = outbound.guard()
        report = asyncio.run(probe_endpoint(endpoints.chosen(endpoint), guard, key))
        if report.answers:
            breaker.close(*breaker.server_of(endpoint))
        return Response(ProbeSerializer(report).data)
