"""Mask what a tenant stored before it had a rule that keeps nothing raw."""

import sys
from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from quality.privacy.stored import NothingToMask, mask_stored
from tenants.access import tenant_by_slug


class Command(BaseCommand):
    help = "Mask, for good, what a tenant holds of evidence by its rules that keep nothing raw."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--dry-run", action="store_true", help="count what would be masked, and change nothing")
        parser.add_argument("--after", type=int, default=0, metavar="TURN", help="go on behind this turn")

    def handle(self, *args: Any, tenant: str, dry_run: bool, after: int, **options: Any) -> None:
        found = tenant_by_slug(tenant)
        if found is None:
            raise CommandError(f"There is no tenant {tenant!r}.", returncode=2)
        total = Counter[str]()
        try:
            for model, last, counts in mask_stored(found, dry_run=dry_run, after=after):
                total += counts
                self.stderr.write(f"\r{model} {last:,}: {total.total():,} values", ending="")
        except NothingToMask:
            told = f"{tenant} has no rule in use that keeps nothing raw, so there is nothing to mask for good."
            raise CommandError(told, returncode=2) from None
        self.stderr.write("")
        for column, number in sorted(total.items()):
            self.stdout.write(f"{number:>10,}  {column}")
        self.stdout.write(f"{total.total():>10,}  {'would be' if dry_run else 'were'} masked")
        sys.stdout.flush()
