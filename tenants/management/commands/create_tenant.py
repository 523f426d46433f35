"""Makes an organisation with its first admin."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from tenants import audit
from tenants.access import tenant_by_slug
from tenants.models import Membership, Role, Tenant, User
from tenants.scope import tenant_scope


class Command(BaseCommand):
    help = "Create a tenant and its first admin; then `manage.py signin_link --email …` lets the admin in."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="short name in addresses: lower-case letters, digits, dashes")
        parser.add_argument("--name", help="name shown to people (default: the slug)")
        parser.add_argument("--admin", required=True, help="e-mail address of the first admin")

    def handle(self, *args: Any, **options: Any) -> None:
        slug, email = options["slug"], options["admin"].strip().lower()
        if tenant_by_slug(slug):
            raise CommandError(f"There is a tenant {slug!r} already.")
        try:
            with transaction.atomic():
                tenant = Tenant.objects.create_tenant(slug=slug, name=options["name"] or slug)
                user = User.objects.filter(email=email).first() or User.objects.create_user(email)
                with tenant_scope(tenant):
                    membership = Membership.objects.create(user=user, role=Role.ADMIN)
                    audit.record("tenant.created", object_type="tenant", object_id=tenant.pk, detail={"admin": email})
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from error
        self.stdout.write(f"Made tenant {tenant.slug} with {membership.user} as admin.")
