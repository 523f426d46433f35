"""Styles of a tenant, and the skills that they attach, over the API."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.problems import InvalidRequest, fault
from quality.api.shapes import Person, StrictRequest
from tenants import styles
from tenants.catalogue import catalogue
from tenants.models import Scope, Skill, Style, StyleVersion

MAX_VERSIONS = 50


class ExampleSerializer(serializers.Serializer):
    user = serializers.CharField(trim_whitespace=False)
    assistant = serializers.CharField(trim_whitespace=False)


class StyleSerializer(serializers.Serializer):
    """A style in its newest version. Without skills it has all tools."""

    id = serializers.IntegerField(read_only=True)
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
        "id": style.pk,
        "styleId": style.style_id,
        "name": style.name,
        "version": version.number,
        "systemPrompt": version.system_prompt,
        "examples": version.examples,
        "skills": version.skills,
        "isDefault": style.is_default,
    }


class StyleVersionSerializer(serializers.Serializer):
    """What a style was."""

    version = serializers.IntegerField(source="number")
    systemPrompt = serializers.CharField(source="system_prompt")
    examples = ExampleSerializer(many=True)
    skills = serializers.ListField(child=serializers.CharField())
    by = Person(allow_null=True)
    at = serializers.DateTimeField()


class StyleDetailSerializer(StyleSerializer):
    versions = StyleVersionSerializer(many=True, help_text=f"The newest {MAX_VERSIONS}, the newest first.")


class RestoreRequest(StrictRequest):
    version = serializers.IntegerField(min_value=1)


class SkillSerializer(serializers.Serializer):
    """A group of tools that styles attach."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    description = serializers.CharField()
    tools = serializers.ListField(child=serializers.CharField())


class SkillListSerializer(serializers.Serializer):
    skills = SkillSerializer(many=True)


class SkillRequest(StrictRequest):
    """A skill; the one with this name is changed if there is one."""

    name = serializers.CharField(max_length=40)
    description = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
    tools = serializers.ListField(child=serializers.CharField(max_length=64))


def detailed(style: Style) -> dict[str, Any]:
    versions = list(StyleVersion.objects.filter(style=style).select_related("by").order_by("-number")[:MAX_VERSIONS])
    return shown(style, versions[0]) | {"versions": StyleVersionSerializer(versions, many=True).data}


def _style(pk: int) -> Style:
    style: Style | None = Style.objects.filter(pk=pk).first()
    if style is None:
        raise Http404
    return style


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


class StyleView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getStyle", tags=["Styles"], responses=StyleDetailSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """A style with its versions."""
        return Response(detailed(_style(pk)))

    @extend_schema(
        operation_id="deleteStyle", tags=["Styles"], responses={204: OpenApiResponse(description="It is deleted.")}
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a style with its versions. Turns that name it fail from then on."""
        styles.delete_style(style=_style(pk), actor=request.user, token=request.auth)
        return Response(status=204)


class StyleRestoreView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(
        operation_id="restoreStyle", tags=["Styles"], request=RestoreRequest, responses=StyleDetailSerializer
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Use an older version again, as the newest one."""
        style, number = _style(pk), read_body(RestoreRequest, request)["version"]
        try:
            saved = styles.restore_version(style=style, number=number, actor=request.user, token=request.auth)
        except StyleVersion.DoesNotExist as error:
            text = f"Style {style.style_id} has no version {number}."
            raise InvalidRequest([fault("version", "no_such_version", text)]) from error
        return Response(detailed(saved))


class SkillsView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listSkills", tags=["Styles"], responses=SkillListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The skills of the tenant: groups of tools that styles attach."""
        return Response({"skills": SkillSerializer(Skill.objects.order_by("name"), many=True).data})

    @extend_schema(operation_id="saveSkill", tags=["Styles"], request=SkillRequest, responses=SkillSerializer)
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Make a skill, or change the one with this name. Takes effect at the next turn."""
        wanted = read_body(SkillRequest, request)
        known = {entry.name for entry in catalogue()}
        if unknown := [name for name in wanted["tools"] if name not in known]:
            raise InvalidRequest([fault("tools", "no_such_tool", f"There is no tool {', '.join(unknown)}.")])
        pk = Skill.objects.filter(name=wanted["name"]).values_list("pk", flat=True).first()
        skill = styles.save_skill(**wanted, actor=request.user, token=request.auth, pk=pk)
        return Response(SkillSerializer(skill).data)


class SkillView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(
        operation_id="deleteSkill",
        tags=["Styles"],
        responses={
            204: OpenApiResponse(description="It is deleted."),
            400: OpenApiResponse(description="A style has it: take it out there first."),
        },
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a skill that no style has. Its tools stay."""
        skill = Skill.objects.filter(pk=pk).first()
        if skill is None:
            raise Http404
        styles.delete_skill(skill=skill, actor=request.user, token=request.auth)
        return Response(status=204)
