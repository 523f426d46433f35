"""Tools of a tenant over the API: the list, the booking link, the active definitions, kept definitions, secrets."""
# mypy: disable-error-code="assignment"
# (a field may be called `source` or `label`: REST framework takes declared fields off the class)

from typing import Any

from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from engine.errors import ToolError
from engine.tools.definitions import DefinitionFault, DefinitionsError
from quality import tool_use
from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.problems import InvalidRequest, fault, problem
from quality.api.shapes import StrictRequest
from tenants import active, booking, secrets, tools
from tenants.catalogue import catalogue
from tenants.envelope import NoKeys, SecretInvalid
from tenants.models import HttpToolRow, Purpose, Scope, Secret
from tenants.models.tool import MODES, SAFETIES


class ToolSerializer(serializers.Serializer):
    """One tool, whatever its kind, with its calls of the last seven days."""

    id = serializers.IntegerField(source="entry.row_pk", allow_null=True, help_text="Of a kept definition.")
    name = serializers.CharField(source="entry.name")
    kind = serializers.CharField(source="entry.kind")
    description = serializers.CharField(source="entry.description")
    enabled = serializers.BooleanField(source="entry.is_enabled")
    mode = serializers.CharField(source="entry.mode")
    safety = serializers.CharField(source="entry.safety")
    note = serializers.CharField(source="entry.note")
    version = serializers.IntegerField(source="entry.version", allow_null=True)
    missingSecrets = serializers.ListField(source="entry.missing", child=serializers.CharField())
    numCalls = serializers.IntegerField(source="use.num_calls")
    numErrors = serializers.IntegerField(source="use.num_errors")


class ToolListSerializer(serializers.Serializer):
    tools = ToolSerializer(many=True)


class BookingSerializer(serializers.Serializer):
    enabled = serializers.BooleanField()
    url = serializers.CharField(allow_null=True)


class BookingRequest(serializers.Serializer):
    url = serializers.CharField(max_length=4000)


class ActiveSerializer(serializers.Serializer):
    """The HTTP tool definitions in use beside the kept ones."""

    ok = serializers.BooleanField()
    count = serializers.IntegerField()
    source = serializers.ChoiceField(choices=["file", "request", "none"])
    tools = serializers.ListField(child=serializers.DictField())


class SwitchRequest(StrictRequest):
    """How a tool that is no kept definition is offered. `mode` and `safety` left out: the tool's own."""

    name = serializers.CharField(max_length=64)
    enabled = serializers.BooleanField()
    mode = serializers.ChoiceField(choices=MODES, required=False)
    safety = serializers.ChoiceField(choices=SAFETIES, required=False)


class EnableRequest(StrictRequest):
    enabled = serializers.BooleanField()


class SavedToolSerializer(serializers.Serializer):
    id = serializers.IntegerField(source="row.pk")
    name = serializers.CharField(source="row.name")
    version = serializers.IntegerField(source="row.version")
    missingSecrets = serializers.ListField(source="missing", child=serializers.CharField())


class SecretSerializer(serializers.ModelSerializer):
    """A secret by its name; the value is never told."""

    setAt = serializers.DateTimeField(source="set_at")

    class Meta:
        model = Secret
        fields = ("id", "name", "fingerprint", "setAt")


class SecretListSerializer(serializers.Serializer):
    secrets = SecretSerializer(many=True)


class SecretRequest(serializers.Serializer):
    name = serializers.CharField(max_length=64)
    value = serializers.CharField(max_length=secrets.MAX_VALUE, trim_whitespace=False, write_only=True)


class ToolsView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="listTools", tags=["Tools"], responses=ToolListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Every tool of the tenant with its kind, enabled flag, mode, safety, and calls of the last seven days."""
        used = tool_use.last_days()
        rows = [{"entry": entry, "use": used.get(entry.name, tool_use.Use())} for entry in catalogue()]
        return Response({"tools": ToolSerializer(rows, many=True).data})


class BookingView(TenantView):
    required_scope = Scope.READ  # agents give the link to whoever asks
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getBooking", tags=["Tools"], responses=BookingSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response | HttpResponse:
        """The booking link, if there is one."""
        try:
            url = booking.url(run="API")
        except SecretInvalid as error:
            return problem(409, error.code, str(error))
        return Response({"enabled": url is not None, "url": url})

    @extend_schema(operation_id="setBooking", tags=["Tools"], request=BookingRequest, responses=BookingSerializer)
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Set the booking link: https, public, without credentials. Takes effect at the next turn."""
        url = read_body(BookingRequest, request)["url"]
        try:
            booking.set_url(url, actor=request.user, token=request.auth)
        except NoKeys as error:
            raise InvalidRequest([fault("url", "no_keys", str(error))]) from error
        return Response({"enabled": True, "url": url.strip()})

    @extend_schema(operation_id="removeBooking", tags=["Tools"], responses=BookingSerializer)
    @in_scope
    def delete(self, request: TokenRequest) -> Response:
        """Remove the booking link; the tool is offered no more."""
        booking.remove(actor=request.user, token=request.auth)
        return Response({"enabled": False, "url": None})


class DefinitionsInBody(TenantView):
    """A view whose body is an array of definitions, read as it came: a fault names its place in the bytes."""

    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE
    parser_classes = ()

    def body(self, request: TokenRequest) -> bytes:
        return request._request.body


class ActiveToolsView(DefinitionsInBody):
    @extend_schema(operation_id="getActiveTools", tags=["Tools"], responses=ActiveSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The active HTTP tool definitions and where they are from. Header values written out are hidden."""
        return Response(active.active().to_json())

    @extend_schema(
        operation_id="replaceActiveTools",
        tags=["Tools"],
        request={"application/json": OpenApiTypes.ANY},
        responses={
            200: ActiveSerializer,
            400: OpenApiResponse(description="Empty, not UTF-8, no array, or a definition that cannot be used."),
            503: OpenApiResponse(description="No enabled model could call a tool, or the shared cache is away."),
        },
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response | HttpResponse:
        """Replace the definitions of the operator's file with an array of your own, from the next turn on and until
        the service restarts."""
        body = self.body(request)
        if not body.strip():
            raise InvalidRequest([fault("", "empty", "The body is empty; send a JSON array of definitions.")])
        try:
            return Response(active.replace(body, actor=request.user, token=request.auth).to_json())
        except DefinitionsError as error:
            raise InvalidRequest(map(_fault, error.faults)) from error
        except active.NotAvailable as error:
            return problem(503, "not_available", str(error))

    @extend_schema(
        operation_id="restoreActiveTools",
        tags=["Tools"],
        responses={200: ActiveSerializer, 503: OpenApiResponse(description="The shared cache is away.")},
    )
    @in_scope
    def delete(self, request: TokenRequest) -> Response | HttpResponse:
        """Bring the definitions of the operator's file back."""
        try:
            return Response(active.restore(actor=request.user, token=request.auth).to_json())
        except active.NotAvailable as error:
            return problem(503, "not_available", str(error))


class KeptToolsView(DefinitionsInBody):
    required_scope = Scope.SETTINGS_WRITE  # a definition may hold headers that only admins see

    @extend_schema(operation_id="exportTools", tags=["Tools"], responses={200: OpenApiTypes.ANY})
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """All kept HTTP tool definitions as an array. Secrets are named in it, never contained."""
        return Response(tools.export_tools())

    @extend_schema(
        operation_id="importTools",
        tags=["Tools"],
        request={"application/json": OpenApiTypes.ANY},
        responses={200: SavedToolSerializer(many=True)},
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Take in an array of definitions: all of them or none. A known name gets a new version."""
        try:
            saved = tools.import_tools(self.body(request), actor=request.user, token=request.auth)
        except ToolError as error:
            faults: list[Any] = getattr(error, "faults", [])
            raise InvalidRequest(map(_fault, faults) if faults else [fault("", "refused", str(error))]) from error
        return Response(SavedToolSerializer(saved, many=True).data)


class KeptToolView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="enableTool", tags=["Tools"], request=EnableRequest, responses=ToolSerializer)
    @in_scope
    def patch(self, request: TokenRequest, pk: int) -> Response:
        """Switch a kept definition on or off, from the next turn on."""
        row = _kept(pk)
        is_enabled = read_body(EnableRequest, request)["enabled"]
        tools.switch_tool(row=row, is_enabled=is_enabled, actor=request.user, token=request.auth)
        return Response(_shown(row.name))

    @extend_schema(
        operation_id="deleteTool", tags=["Tools"], responses={204: OpenApiResponse(description="It is deleted.")}
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a kept definition with its versions. Calls that were recorded stay."""
        tools.delete_tool(row=_kept(pk), actor=request.user, token=request.auth)
        return Response(status=204)


class ToolSwitchView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="switchTool", tags=["Tools"], request=SwitchRequest, responses=ToolSerializer)
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Switch a tool that is no kept definition: a built-in one, a script, one of the active definitions."""
        wanted = read_body(SwitchRequest, request)
        if not any(entry.name == wanted["name"] and entry.row_pk is None for entry in catalogue()):
            raise InvalidRequest([fault("name", "no_such_tool", f"There is no such tool: {wanted['name']}.")])
        tools.set_switch(
            name=wanted["name"],
            is_enabled=wanted["enabled"],
            mode=wanted.get("mode", ""),
            safety=wanted.get("safety", ""),
            actor=request.user,
            token=request.auth,
        )
        return Response(_shown(wanted["name"]))


def _kept(pk: int) -> HttpToolRow:
    row: HttpToolRow | None = HttpToolRow.objects.filter(pk=pk).first()
    if row is None:
        raise Http404
    return row


def _shown(name: str) -> dict[str, Any]:
    entry = next(entry for entry in catalogue() if entry.name == name)
    return dict(ToolSerializer({"entry": entry, "use": tool_use.last_days().get(name, tool_use.Use())}).data)


class SecretsView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listSecrets", tags=["Secrets"], responses=SecretListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Secrets of tools, by name and fingerprint."""
        found = Secret.objects.filter(purpose=Purpose.TOOL).order_by("name")
        return Response({"secrets": SecretSerializer(found, many=True).data})

    @extend_schema(operation_id="setSecret", tags=["Secrets"], request=SecretRequest, responses=SecretSerializer)
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Set a secret, or give one another value, for the tools that refer to it now, each at its present host."""
        wanted = read_body(SecretRequest, request)
        try:
            secret = tools.set_tool_secret(**wanted, actor=request.user, token=request.auth)
        except NoKeys as error:
            raise InvalidRequest([fault("value", "no_keys", str(error))]) from error
        return Response(SecretSerializer(secret).data)


class SecretView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(
        operation_id="deleteSecret", tags=["Secrets"], responses={204: OpenApiResponse(description="It is deleted.")}
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a secret. Tools that refer to it fail until it is set again."""
        secret = Secret.objects.filter(pk=pk, purpose=Purpose.TOOL).first()
        if secret is None:
            raise Http404
        secrets.delete_secret(secret=secret, actor=request.user, token=request.auth)
        return Response(status=204)


def _fault(found: DefinitionFault) -> dict[str, str]:
    path = "" if found.index is None else f"[{found.index}]{'.' if found.field else ''}{found.field}"
    return fault(path, "invalid_definition", f"{path or 'The body'} {found.reason}")
