"""Styles of a tenant over the API."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from tenants import styles
from tenants.models import Scope, Style, StyleVersion


class ExampleSerializer(serializers.Serializer):
    user = serializers.CharField(trim_whitespace=False)
    assistant = serializers.CharField(trim_whitespace=False)


class StyleSerializer(serializers.Serializer):
    """A style in its newest version. Without skills it has all tools."""

    styleId = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=120)
    version = serializers.IntegerField(read_only=True)
    systemPrompt = serializers.CharField(allow_blank=True, trim_whitespace=False, required=False, default="")
    examples = ExampleSerializer(many=True, required=False, default=list)
    skills = serializers.ListField(child=serializers.CharField(max_length=40), required=False, default=list)
    isDefault = serializers.BooleanField(required=False, default=False)


class StyleListSerializer(serializers.Serializer):
    styles = StyleSerializer(many=True)


def shown(style: Style, version: StyleVersion) -> dict[str, Any]:
    return {
        "styleId": style.style_id,
        "name": style.name,
        "version": version.number,
        "systemPrompt": version.system_prompt,
        "examples": version.examples,
        "skills": version.skills,
        "isDefault": style.is_default,
    }


class StylesView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listStyles", tags=["Styles"], responses=StyleListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The styles of the tenant, each in its newest version."""
        newest = {style.pk: style for style in Style.objects.order_by("style_id")}
        versions = {
            version.style_id: version for version in StyleVersion.objects.filter(style__in=newest).order_by("number")
        }
        return Response({"styles": [shown(style, versions[pk]) for pk, style in newest.items()]})

    @extend_schema(operation_id="saveStyle", tags=["Styles"], request=StyleSerializer, responses=StyleSerializer)
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Make a style, or give the one with this id a new version, which new turns use."""
        wanted = read_body(StyleSerializer, request)
        pairs = tuple((one["user"], one["assistant"]) for one in wanted["examples"])
        saved = styles.save_style(
            style_id=wanted["styleId"],
            name=wanted["name"],
            text=styles.StyleText(wanted["systemPrompt"], pairs, tuple(wanted["skills"])),
            is_default=wanted["isDefault"],
            actor=request.user,
            token=request.auth,
            pk=Style.objects.filter(style_id=wanted["styleId"]).values_list("pk", flat=True).first(),
        )
        return Response(shown(saved, StyleVersion.objects.get(style=saved, number=saved.version)))
