"""Which role does what: the owner migrates, the application's role does all else."""

from typing import Any


class OwnerMigrates:
    """Migrations run through the `owner` alias only; every query goes through `default` unless told otherwise."""

    def db_for_read(self, model: type, **hints: Any) -> str:
        return "default"

    def db_for_write(self, model: type, **hints: Any) -> str:
        return "default"

    def allow_relation(self, obj1: Any, obj2: Any, **hints: Any) -> bool:
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db == "owner"
