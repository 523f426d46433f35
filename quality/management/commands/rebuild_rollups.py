"""`manage.py rebuild_rollups --tenant SLUG [--check]`: count calls by the hour anew, or compare the counts."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from quality import rollups
from tenants.access import tenant_by_slug
from tenants.models import Tenant
from tenants.scope import tenant_scope


class Command(BaseCommand):
    help = "Counts calls by the hour anew, for charts. Pages are right meanwhile, only slower."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--check", action="store_true", help="compare with the calls, change nothing")

    def handle(self, *args: Any, tenant: str, check: bool, **options: Any) -> None:
        found = tenant_by_slug(tenant)
        if found is None:
            raise CommandError(f"There is no tenant {tenant!r}.", returncode=2)
        if not check:
            self._rebuild(found)
        elif self._check(found):
            raise CommandError("Some counts are wrong. Run it without --check.")

    def _rebuild(self, tenant: Tenant) -> None:
        with tenant_scope(tenant):
            marked = rollups.rebuild()
        while True:
            with tenant_scope(tenant):
                if not rollups.count_marked():
                    break
        self.stdout.write(f"{tenant.slug}: {marked:,} hours counted")

    def _check(self, tenant: Tenant) -> int:
        with tenant_scope(tenant):
            found = rollups.differences()
        for one in found:
            self.stdout.write(
                f"{tenant.slug}: {one.hour:%Y-%m-%d %H:%M} {one.tool_name}: counted {one.counted}, in fact {one.actual}"
            )
        if not found:
            self.stdout.write(f"{tenant.slug}: all counts are right")
        return len(found)
