"""Webhooks over the API: kept, tested, and what became of their messages."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.auth import holds
from quality.api.base import TenantView, TokenRequest, in_scope, read_body, read_query
from quality.api.problems import problem
from quality.api.shapes import StrictRequest
from quality.filters import QueryForm
from quality.models import Webhook, WebhookDelivery
from quality.webhooks import events, hooks, sending, tries
from quality.webhooks.hooks import Wanted
from tenants.models import Scope
from tenants.scope import tenant_scope

TAG = ["Webhooks"]
JSON_NAMES = {"is_enabled": "enabled"}
_EVENTS = ", ".join([*events.BY_NAME, f"or {events.EVERY} for all"])


class WebhookSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    name = serializers.CharField()
    url = serializers.SerializerMethodField(
        help_text="In full for a token with settings:write. Its path may be a secret: others see the host."
    )
    events = serializers.ListField(child=serializers.CharField(), help_text=f"{_EVENTS}.")
    enabled = serializers.BooleanField(source="is_enabled")
    disabledWhy = serializers.CharField(source="disabled_why", help_text="Where the receiver said that it is gone.")
    createdAt = serializers.DateTimeField(source="created_at")

    def get_url(self, hook: Webhook) -> str:
        return sending.shown(hook.url, in_full=self.context["may_configure"])


class KeptWebhookSerializer(WebhookSerializer):
    secret = serializers.CharField(
        allow_null=True, help_text="Signs the messages. Told this once, when it is made; null: it was told before."
    )


class WebhookListSerializer(serializers.Serializer):
    webhooks = WebhookSerializer(many=True)


class WebhookRequest(StrictRequest):
    name = serializers.CharField(max_length=120)
    url = serializers.CharField(max_length=hooks.MAX_URL_CHARS)
    events = serializers.ListField(child=serializers.CharField(max_length=100), max_length=100, help_text=f"{_EVENTS}.")
    enabled = serializers.BooleanField(default=True)


class WebhookChange(StrictRequest):
    name = serializers.CharField(max_length=120, required=False)
    url = serializers.CharField(max_length=hooks.MAX_URL_CHARS, required=False)
    events = serializers.ListField(
        child=serializers.CharField(max_length=100), max_length=100, required=False, help_text=f"{_EVENTS}."
    )
    enabled = serializers.BooleanField(required=False)


class WebhookTestSerializer(serializers.Serializer):
    arrived = serializers.BooleanField()
    status = serializers.IntegerField(allow_null=True)
    error = serializers.CharField()


class DeliverySerializer(serializers.Serializer):
    id = serializers.IntegerField()
    messageId = serializers.SerializerMethodField(help_text="The header webhook-id: the same on each try.")
    event = serializers.CharField()
    about = serializers.CharField(source="subject")
    state = serializers.ChoiceField(choices=WebhookDelivery.State.choices)
    attempt = serializers.IntegerField()
    nextAt = serializers.DateTimeField(source="next_at")
    status = serializers.IntegerField(allow_null=True)
    error = serializers.CharField()
    createdAt = serializers.DateTimeField(source="created_at")
    sentAt = serializers.DateTimeField(source="sent_at", allow_null=True)

    def get_messageId(self, row: WebhookDelivery) -> str:
        return f"msg_{row.message_id.hex}"


class DeliveryPageSerializer(serializers.Serializer):
    items = DeliverySerializer(many=True)
    nextCursor = serializers.CharField(allow_null=True)


class DeliveryListForm(QueryForm):
    state = forms.ChoiceField(required=False, choices=WebhookDelivery.State.choices)
    event = forms.CharField(required=False, max_length=100)
    cursor = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)


def _told(hook: Webhook, request: TokenRequest) -> dict[str, Any]:
    return dict(WebhookSerializer(hook, context=_context(request)).data)


def _context(request: TokenRequest) -> dict[str, bool]:
    return {"may_configure": holds(request.auth, Scope.SETTINGS_WRITE)}


def _hook(pk: int) -> Webhook:
    found: Webhook | None = Webhook.objects.select_related("secret").filter(pk=pk).first()
    if found is None:
        raise Http404
    return found


def _keep(sent: dict[str, Any], request: TokenRequest, hook: Webhook | None = None) -> dict[str, Any]:
    """Raises ValidationError, its fields spelled as the API does."""
    data = {} if hook is None else {name: getattr(hook, name) for name in Wanted.__dataclass_fields__}
    for name in Wanted.__dataclass_fields__:
        spelled = JSON_NAMES.get(name, name)
        if spelled in sent:
            data[name] = sent[spelled]
    wanted = Wanted(**{**data, "events": tuple(data["events"])})
    try:
        kept = hooks.keep(wanted, actor=request.user, token=request.auth, pk=hook.pk if hook else None)
    except ValidationError as error:
        faults = {JSON_NAMES.get(name, name): list(found) for name, found in error.error_dict.items()}
        raise ValidationError(faults) from error
    return _told(kept.webhook, request) | {"secret": kept.secret}


class WebhooksView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listWebhooks", tags=TAG, responses=WebhookListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The webhooks by name."""
        return Response({"webhooks": [_told(hook, request) for hook in hooks.every()]})

    @extend_schema(
        operation_id="createWebhook", tags=TAG, request=WebhookRequest, responses={201: KeptWebhookSerializer}
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Make a webhook. The answer holds the secret that signs its messages, once."""
        return Response(_keep(read_body(WebhookRequest, request), request), status=201)


class WebhookView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getWebhook", tags=TAG, responses=WebhookSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """A webhook."""
        return Response(_told(_hook(pk), request))

    @extend_schema(operation_id="changeWebhook", tags=TAG, request=WebhookChange, responses=KeptWebhookSerializer)
    @in_scope
    def patch(self, request: TokenRequest, pk: int) -> Response:
        """Change a webhook, or switch it off and on with `enabled`."""
        hook = _hook(pk)
        return Response(_keep(read_body(WebhookChange, request), request, hook))

    @extend_schema(
        operation_id="deleteWebhook", tags=TAG, responses={204: OpenApiResponse(description="It is deleted.")}
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a webhook with the log of its messages."""
        hooks.delete(_hook(pk), actor=request.user, token=request.auth)
        return Response(status=204)


class WebhookTestView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="testWebhook", tags=TAG, request=None, responses=WebhookTestSerializer)
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Call it now with a message of type `webhook.test`, and tell what it answered."""
        with tenant_scope(request.auth.tenant):
            _hook(pk)
        answer = hooks.send_test(pk, tenant_id=request.auth.tenant.pk, by=request.user)
        return Response({"arrived": answer.was_taken, "status": answer.status, "error": answer.error})


class WebhookDeliveriesView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="listWebhookDeliveries",
        tags=TAG,
        parameters=[
            OpenApiParameter("state", str, enum=WebhookDelivery.State.values),
            OpenApiParameter("event", str),
            OpenApiParameter("cursor", str, description="`nextCursor` of the page before."),
        ],
        responses=DeliveryPageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """Messages of a webhook, the newest first, by `state` and `event`."""
        hook = _hook(pk)
        asked = read_query(DeliveryListForm, request).cleaned_data
        rows, following = hooks.deliveries(hook, state=asked["state"], event=asked["event"], before=asked["cursor"])
        items = DeliverySerializer(rows, many=True).data
        return Response({"items": items, "nextCursor": str(following) if following else None})


class WebhookDeliveryView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(
        operation_id="resendWebhookDelivery",
        tags=TAG,
        request=None,
        responses={
            200: DeliverySerializer,
            409: OpenApiResponse(description="It is on its way already."),
        },
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Send a message again, under the same id."""
        found = WebhookDelivery.objects.filter(pk=pk).first()
        if found is None:
            raise Http404
        try:
            row = hooks.send_again(found, actor=request.user, token=request.auth)
        except tries.OnItsWay as error:
            return problem(409, "on_its_way", str(error))
        return Response(DeliverySerializer(row).data)
