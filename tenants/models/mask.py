"""Rules of masking: what in evidence is personal, and who sees it all the same."""

from django.core.validators import RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from tenants.models.base import TenantManager, TenantModel, tenant_key


class MaskRule(TenantModel):
    """What is masked, for whom. Its name stands in the marks: `{masked:email:1a2b3c4d}`."""

    class Kind(models.TextChoices):
        PATH = "path", _("JSON path")
        KEY = "key", _("Names of members")
        PATTERN = "pattern", _("Pattern")

    class SeenBy(models.TextChoices):
        OPERATOR = "operator", _("Operators and admins")
        ADMIN = "admin", _("Admins")
        NOBODY = "nobody", pgettext_lazy("masking", "Nobody")

    name = models.CharField(
        max_length=32,
        validators=[
            RegexValidator(
                r"^[a-z0-9][a-z0-9-]*\Z", _("Lower-case letters, digits and dashes only: it is part of each mark.")
            )
        ],
    )
    kind = models.TextField(choices=Kind.choices)
    expression = models.TextField(
        help_text="A JSON path, names with commas between, or a pattern: see tenants.masking."
    )
    seen_by = models.TextField(choices=SeenBy.choices, default=SeenBy.ADMIN, help_text="Who reads what is behind it.")
    keeps_raw = models.BooleanField(default=True, help_text="False: masked when it comes in, and never stored.")
    masks_exports = models.BooleanField(default=False, help_text="Exports hold the mark, whoever orders them.")
    is_enabled = models.BooleanField(default=True)
    version = models.PositiveIntegerField(default=1, help_text="An older write is stale.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager["MaskRule"]()

    class Meta:
        db_table = "mask_rules"
        constraints = [
            tenant_key("mask_rules"),
            models.UniqueConstraint(fields=["tenant", "name"], name="mask_rules_name_key"),
            models.CheckConstraint(
                condition=models.Q(kind__in=["path", "key", "pattern"]), name="mask_rules_kind_check"
            ),
            models.CheckConstraint(
                condition=models.Q(seen_by__in=["operator", "admin", "nobody"]), name="mask_rules_seen_by_check"
            ),
        ]

    def __str__(self) -> str:
        return f"mask {self.name}"
