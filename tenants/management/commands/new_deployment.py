"""Begins a deployment: definitions sent to /api/tools before are gone, LLM_TOOLS_FILE is in use again."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tenants import deployment, shared


class Command(BaseCommand):
    help = "Draw a new deployment id. Called once when the service as a whole starts, not by each of its processes."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(f"Deployment {deployment.new()}")
        except shared.CacheAway as error:
            raise CommandError(f"REDIS_URL: {error}") from error
