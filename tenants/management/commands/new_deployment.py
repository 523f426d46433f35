"""Begins a deployment: definitions sent to /api/tools before are gone, LLM_TOOLS_FILE is in use again."""

from typing import Any

from django.core.management.base import BaseCommand

from tenants import deployment


class Command(BaseCommand):
    help = "Draw a new deployment id. Called once when the service as a whole starts, not by each of its processes."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"Deployment {deployment.new()}")
