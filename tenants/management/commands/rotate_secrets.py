"""Moves all secrets to the first of APP_KEKS. Killed half-way, it goes on where it was when it is run again."""

from argparse import ArgumentParser
from collections import Counter
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from tenants import secrets


class Command(BaseCommand):
    help = "Wrap every secret's data key under the first key of APP_KEKS; tells how many are under which key."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--batch", type=int, default=secrets.ROTATED_AT_ONCE, help="secrets in one transaction")

    def handle(self, *args: Any, batch: int, **options: Any) -> None:
        writing = settings.APP_KEKS.writing
        if writing is None:
            raise CommandError("APP_KEKS is not set, so there is no key to move secrets to.")
        if batch < 1:
            raise CommandError(f"--batch: {batch} is not at least 1.")
        self.stdout.write(f"Before: {self._counts()}")
        broken: list[str] = []
        for tenant_id in sorted({tenant_id for tenant_id, kid, _ in secrets.stored_kids() if kid != writing}):
            while True:
                done, failed = secrets.rotate_batch(tenant_id, limit=batch)
                if not done:
                    broken += [f"{name} of tenant {tenant_id}" for name in failed]
                    break
        self.stdout.write(f"After:  {self._counts()}")
        if broken:
            raise CommandError(f"These do not open and have to be set again: {', '.join(broken)}.")

    def _counts(self) -> str:
        counts: Counter[str] = Counter()
        for _, kid, count in secrets.stored_kids():
            counts[kid] += count
        return ", ".join(f"{kid}: {counts[kid]}" for kid in sorted(counts)) or "no secrets"
