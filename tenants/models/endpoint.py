"""Model endpoints as rows: where a tenant's models are, and which one answers whom."""

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy

from tenants.models.base import TenantManager, TenantModel, tenant_key
from tenants.models.secret import Secret


class ModelEndpoint(TenantModel):
    """One model on one server. Turns choose it by `label`, or by their source."""

    label = models.CharField(
        max_length=40,
        validators=[
            RegexValidator(
                r"^[a-z0-9][a-z0-9_-]*\Z", gettext_lazy("Lower-case letters, digits, - and _; a letter or digit first.")
            )
        ],
        help_text="By this turns choose it, such as “expert”.",
    )
    base_url = models.TextField(help_text="Up to /chat/completions, such as https://llm.example.com/v1.")
    model = models.CharField(max_length=200, help_text="As the server knows it.")
    key = models.ForeignKey(
        Secret, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    parameters = models.JSONField(default=dict, help_text="Sent along as they are: temperature, max_tokens …")
    price_prompt = models.FloatField(default=0, validators=[MinValueValidator(0)])
    price_completion = models.FloatField(default=0, validators=[MinValueValidator(0)])
    sources = ArrayField(models.TextField(), default=list, help_text="Turns of these sources; none: of all others.")
    is_enabled = models.BooleanField(default=True)
    is_stand_in = models.BooleanField(default=False, help_text="Rules that play a model, for trying things out.")
    repairs_text_calls = models.BooleanField(
        default=True, help_text="Gateway: calls that come as text become tool calls."
    )
    asks_again_when_empty = models.BooleanField(
        default=True, help_text="Gateway: an empty streamed answer is asked for once more, whole."
    )
    checks_arguments = models.BooleanField(
        default=True, help_text="Gateway: arguments that do not fit the tool's schema are hinted at."
    )
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager["ModelEndpoint"]()

    class Meta:
        db_table = "model_endpoints"
        constraints = [
            tenant_key("model_endpoints"),
            models.UniqueConstraint(
                fields=["tenant", "label"],
                name="model_endpoints_label_key",
                violation_error_message=gettext_lazy("Another model has this label."),
            ),
            models.CheckConstraint(
                condition=models.Q(price_prompt__gte=0, price_completion__gte=0), name="model_endpoints_price_check"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.label}: {self.model}"
