"""Prints a one-time sign-in link."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from tenants.access import signin_link
from tenants.models import User


class Command(BaseCommand):
    help = "Print the path of a one-time sign-in link (valid for a day) for a user."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--email", default="demo@example.com", help="whose link (default: the demo admin)")
        parser.add_argument(
            "--base", default="", help="address to put before the path, such as https://lab.example.com"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        email = options["email"].strip().lower()
        user = User.objects.filter(email=email, is_active=True).first()
        if user is None:
            raise CommandError(
                f"There is no active user {email!r}. `manage.py create_tenant` or an invitation makes one."
            )
        uid = urlsafe_base64_encode(force_bytes(user.pk))
        path = reverse("signin-once", args=[uid, signin_link.make_token(user)])
        self.stdout.write(options["base"].rstrip("/") + path)
