"""Make the demo tenants with their sample turns; does nothing where they exist."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from quality.demo import seed


class Command(BaseCommand):
    help = "Make the demo tenants: people, a month of turns, some labels. A second run changes nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--reset",
            action="store_true",
            help="delete the demo tenants' turns and labels, and make a fresh month; other tenants are never touched",
        )

    def handle(self, *args: Any, reset: bool, **options: Any) -> None:
        for plan in seed.PLANS:
            try:
                made = seed.make(plan, reset=reset)
            except seed.NotADemo as error:
                raise CommandError(str(error)) from error
            self.stdout.write(_told(made))


def _told(made: seed.Made) -> str:
    if not made.turns:
        return f"{made.plan.name} ({made.plan.slug}): there already."
    members = ", ".join(f"{email} ({role})" for email, _, role in made.plan.people)
    return (
        f"{made.plan.name} ({made.plan.slug}): {made.turns} turns, {made.calls} tool calls, {made.labels} labels.\n"
        f"  Members, without passwords: {members}"
    )
