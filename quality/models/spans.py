"""Spans as they arrive over OTLP: late, in pieces, children before parents. A trace is read anew when more comes."""

from django.db import models
from django.utils import timezone

from quality.models.base import EvidenceField, SentenceField
from tenants.models import TenantManager, TenantModel
from tenants.models.base import tenant_key


class OtlpTrace(TenantModel):
    """One trace, and whether its turns are made of all that is there. Who holds `lease_token` reads it."""

    trace_id = models.CharField(max_length=32, help_text="Hex, lower case.")
    format = models.TextField(blank=True, help_text="Importer that reads it; empty: none of its spans is ours.")
    num_spans = models.PositiveIntegerField(default=0)
    version = models.PositiveIntegerField(default=0, help_text="Counts arrivals of spans.")
    read_version = models.PositiveIntegerField(default=0, help_text="The version that its turns were made of.")
    attempt = models.PositiveSmallIntegerField(default=0, help_text="Failed readings of this version.")
    failure = SentenceField(blank=True)
    first_at = models.DateTimeField(default=timezone.now)
    last_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["OtlpTrace"]()

    class Meta:
        db_table = "otlp_traces"
        constraints = [
            tenant_key("otlp_traces"),
            models.UniqueConstraint(fields=["tenant", "trace_id"], name="otlp_traces_trace_key"),
        ]
        indexes = [
            models.Index(
                fields=["last_at"],
                name="otlp_traces_unread_idx",
                condition=models.Q(read_version__lt=models.F("version")),
            ),
            models.Index(
                fields=["tenant", "-last_at", "-id"],
                name="otlp_traces_failed_idx",
                condition=~models.Q(failure=""),
            ),
        ]

    def __str__(self) -> str:
        return f"trace {self.trace_id}"


class OtlpSpan(TenantModel):
    """One span of interest: a tool's, a model's, an agent's. The same span again replaces itself."""

    trace = models.ForeignKey(
        OtlpTrace, on_delete=models.CASCADE, related_name="spans", db_index=False, db_constraint=False
    )
    span_id = models.CharField(max_length=16, help_text="Hex, lower case.")
    data = EvidenceField(help_text="The span in OTLP's JSON form, with its resource and scope.")
    received_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["OtlpSpan"]()

    class Meta:
        db_table = "otlp_spans"
        constraints = [
            tenant_key("otlp_spans"),
            models.UniqueConstraint(fields=["tenant", "trace", "span_id"], name="otlp_spans_span_key"),
        ]
        indexes = [models.Index(fields=["received_at"], name="otlp_spans_age_idx")]

    def __str__(self) -> str:
        return f"span {self.span_id}"
