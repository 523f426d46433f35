"""How much a turn may do, and which of the operator's tools it may use, over the API."""
# mypy: disable-error-code="assignment"
# (a field may be called `source`: REST framework takes declared fields off the class)

import math
from dataclasses import asdict
from typing import Any

from django.core.exceptions import ValidationError
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.shapes import StrictRequest
from tenants import databases, limits, scripts
from tenants.models import Scope, TenantSettings

JSON_NAMES = {
    "max_cycles": "maxCycles",
    "tool_timeout_s": "toolTimeoutS",
    "result_max_chars": "resultMaxChars",
    "max_calls": "maxCalls",
    "max_tokens": "maxTokens",
    "max_cost": "maxCost",
    "wall_time_s": "wallTimeS",
}
WHOLE = {"max_cycles", "result_max_chars", "max_calls", "max_tokens"}


class Numbers(StrictRequest):
    """One number for each limit of a turn."""

    def get_fields(self) -> dict[str, serializers.Field]:
        return {
            spelled: (serializers.IntegerField if name in WHOLE else serializers.FloatField)(
                required=False, allow_null=True
            )
            for name, spelled in JSON_NAMES.items()
        }


class LimitsSerializer(serializers.Serializer):
    """`limits` are in force (null: none), `own` are the tenant's (null: the operator's default), `bounds` are the most
    that may be set."""

    limits = Numbers()
    own = Numbers()
    bounds = Numbers()


class LimitsRequest(Numbers):
    """The tenant's own numbers; null takes the operator's default again. What is not sent stays as it is."""


class ScriptFaultSerializer(serializers.Serializer):
    file = serializers.CharField()
    reason = serializers.CharField()


class ScriptsSerializer(serializers.Serializer):
    """Script tools of the operator, for this tenant."""

    enabled = serializers.BooleanField()
    tools = serializers.ListField(child=serializers.CharField(), help_text="Names of those there are.")
    faults = ScriptFaultSerializer(many=True)


class ScriptsRequest(StrictRequest):
    enabled = serializers.BooleanField()


class DatabaseSerializer(serializers.Serializer):
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    enabled = serializers.BooleanField()


class DatabaseListSerializer(serializers.Serializer):
    databases = DatabaseSerializer(many=True)


class DatabasesRequest(StrictRequest):
    """The databases that agents may ask, and no others."""

    names = serializers.ListField(child=serializers.CharField(max_length=200))


def _own() -> dict[str, Any]:
    row = TenantSettings.objects.first()
    return {name: getattr(row, name, None) for name in limits.ALL}


def _numbers(values: dict[str, Any]) -> dict[str, Any]:
    return {
        spelled: None if values[name] == math.inf else int(values[name]) if _is_whole(name, values) else values[name]
        for name, spelled in JSON_NAMES.items()
    }


def _is_whole(name: str, values: dict[str, Any]) -> bool:
    return name in WHOLE and values[name] is not None


def _limits() -> dict[str, Any]:
    return {
        "limits": _numbers(asdict(limits.limits(TenantSettings.objects.first()))),
        "own": _numbers(_own()),
        "bounds": _numbers({name: limits.bound(name) for name in limits.ALL}),
    }


class LimitsView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getLimits", tags=["Limits"], responses=LimitsSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """How much one turn may do."""
        return Response(_limits())

    @extend_schema(operation_id="setLimits", tags=["Limits"], request=LimitsRequest, responses=LimitsSerializer)
    @in_scope
    def patch(self, request: TokenRequest) -> Response:
        """Set the tenant's own limits, within the operator's bounds. Turns that begin from now on keep them."""
        wanted = read_body(LimitsRequest, request)
        own = {name: wanted.get(JSON_NAMES[name], value) for name, value in _own().items()}
        try:
            limits.set_limits(**own, actor=request.user, token=request.auth)
        except ValidationError as error:
            faults = {JSON_NAMES[name]: list(found) for name, found in error.error_dict.items()}
            raise ValidationError(faults) from error
        return Response(_limits())


def _scripts() -> dict[str, Any]:
    found, faults = scripts.loaded()
    own = TenantSettings.objects.first()
    return {
        "enabled": bool(own and own.scripts_enabled),
        "tools": [tool.name for tool in found],
        "faults": [{"file": fault.file, "reason": fault.reason} for fault in faults],
    }


class ScriptsView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getScriptTools", tags=["Tools"], responses=ScriptsSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The operator's script tools, and whether this tenant's agents may call them."""
        return Response(_scripts())

    @extend_schema(
        operation_id="switchScriptTools", tags=["Tools"], request=ScriptsRequest, responses=ScriptsSerializer
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Switch the operator's script tools on or off."""
        wanted = read_body(ScriptsRequest, request)
        scripts.switch(is_enabled=wanted["enabled"], actor=request.user, token=request.auth)
        return Response(_scripts())


def _databases() -> dict[str, Any]:
    own = TenantSettings.objects.first()
    chosen = own.databases if own is not None else []
    return {
        "databases": [
            {"name": name, "description": one.get("description", ""), "enabled": name in chosen}
            for name, one in databases.configured().items()
        ]
    }


class DatabasesView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listDatabases", tags=["Tools"], responses=DatabaseListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The operator's databases, and which of them this tenant's agents may ask."""
        return Response(_databases())

    @extend_schema(
        operation_id="chooseDatabases", tags=["Tools"], request=DatabasesRequest, responses=DatabaseListSerializer
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Let agents ask these databases and no others."""
        databases.choose(read_body(DatabasesRequest, request)["names"], actor=request.user, token=request.auth)
        return Response(_databases())
