"""Tells the demo tenants where the stand-in model is."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from quality.demo.seed import PLANS
from tenants import access, endpoints
from tenants.models import ModelEndpoint
from tenants.scope import tenant_scope

LABEL = "stand-in"


class Command(BaseCommand):
    help = (
        "Register the stand-in model (rules that play a model, no language model) with the demo tenants, under the "
        f"label {LABEL!r}. Where there is no demo tenant nothing is done."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--base-url", required=True, help="where it listens, up to /chat/completions")

    def handle(self, *args: Any, base_url: str, **options: Any) -> None:
        for plan in PLANS:
            tenant = access.tenant_by_slug(plan.slug)
            if tenant is None or not tenant.is_demo:
                continue
            with tenant_scope(tenant):
                known = ModelEndpoint.objects.filter(label=LABEL).first()
                if known is not None and known.base_url == base_url:
                    continue
                data = endpoints.EndpointData(
                    label=LABEL,
                    base_url=base_url,
                    model="stand-in-rules",
                    is_stand_in=True,
                    is_enabled=known.is_enabled if known is not None else True,
                )
                endpoints.save_endpoint(data, actor=None, pk=known.pk if known is not None else None)
            self.stdout.write(f"{plan.name}: model {LABEL} at {base_url}")
