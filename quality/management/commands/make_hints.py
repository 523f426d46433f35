"""Make the hints of turns that wait for them."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Count

from quality.models import Hint, Turn
from quality.review import hinting
from quality.review.hints import BY_NAME
from tenants.access import tenant_by_slug
from tenants.scope import tenant_scope


class Command(BaseCommand):
    help = "Make the hints of a tenant's turns that wait for them, and tell how many there are of each rule."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--again", action="store_true", help="make those of all turns again")

    def handle(self, *args: Any, tenant: str, again: bool, **options: Any) -> None:
        found = tenant_by_slug(tenant)
        if found is None:
            raise CommandError(f"There is no tenant {tenant!r}.", returncode=2)
        if again:
            with tenant_scope(found):
                Turn.objects.update(hints_version=0)
        while hinting.make(found):
            pass
        with tenant_scope(found):
            left = Turn.objects.filter(hints_version=0).count()
            counts = dict(Hint.objects.values_list("rule").annotate(Count("pk")).order_by())
        for name, rule in BY_NAME.items():
            self.stdout.write(f"{counts.get(name, 0):>8,}  {name}: {rule.word}")
        if left:
            self.stderr.write(f"{left:,} turns wait: another worker is at them.")
            sys.exit(1)
