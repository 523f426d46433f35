"""Styles as rows: named, versioned configurations of an agent, and skills, which are groups of tools."""

from django.contrib.postgres.fields import ArrayField
from django.core.validators import RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy

from tenants.models.base import TenantManager, TenantModel, tenant_key
from tenants.models.people import User

_SLUG = RegexValidator(
    r"^[a-z0-9][a-z0-9_-]*\Z", gettext_lazy("Lower-case letters, digits, - and _; a letter or digit first.")
)


class Skill(TenantModel):
    """A group of tools that styles attach."""

    name = models.CharField(max_length=40, validators=[_SLUG])
    description = models.CharField(max_length=500, blank=True)
    tools = ArrayField(models.TextField(), default=list)

    objects = TenantManager["Skill"]()

    class Meta:
        db_table = "skills"
        constraints = [
            tenant_key("skills"),
            models.UniqueConstraint(
                fields=["tenant", "name"],
                name="skills_name_key",
                violation_error_message=gettext_lazy("Another skill has this name."),
            ),
        ]

    def __str__(self) -> str:
        return f"skill {self.name}"


class Style(TenantModel):
    """A style by the id that turns name. `version` is the newest one's number."""

    style_id = models.CharField(max_length=40, validators=[_SLUG])
    name = models.CharField(max_length=120)
    version = models.PositiveIntegerField(default=0)
    is_default = models.BooleanField(default=False, help_text="For turns that name no style.")
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager["Style"]()

    class Meta:
        db_table = "styles"
        constraints = [
            tenant_key("styles"),
            models.UniqueConstraint(
                fields=["tenant", "style_id"],
                name="styles_style_id_key",
                violation_error_message=gettext_lazy("Another style has this id."),
            ),
            models.UniqueConstraint(fields=["tenant"], name="styles_default_key", condition=models.Q(is_default=True)),
        ]

    def __str__(self) -> str:
        return f"style {self.style_id}"


class StyleVersion(TenantModel):
    """What a style was: append-only. `examples` is a list of `{user, assistant}`, `skills` are names."""

    style = models.ForeignKey(
        Style, on_delete=models.DO_NOTHING, related_name="versions", db_index=False, db_constraint=False
    )
    number = models.PositiveIntegerField()
    system_prompt = models.TextField(blank=True)
    examples = models.JSONField(default=list)
    skills = ArrayField(models.TextField(), default=list)
    by = models.ForeignKey(User, on_delete=models.DO_NOTHING, null=True, related_name="+", db_index=False)
    at = models.DateTimeField(auto_now_add=True)

    objects = TenantManager["StyleVersion"]()

    class Meta:
        db_table = "style_versions"
        constraints = [
            tenant_key("style_versions"),
            models.UniqueConstraint(fields=["tenant", "style", "number"], name="style_versions_number_key"),
        ]

    def __str__(self) -> str:
        return f"version {self.number} of style {self.style_id}"
