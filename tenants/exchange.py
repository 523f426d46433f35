"""The exchange desk of a tenant: where the engine's tools keep things, and what people do there."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.db import transaction

from engine.tools.exchange import DeskError, Order, OrderState, Rate, Verification
from tenants import audit
from tenants.models import (
    ApiToken,
    ExchangeCustomer,
    ExchangeDesk,
    ExchangeOrder,
    ExchangeRate,
    ExchangeRequisites,
    User,
)
from tenants.threads import in_scope
from tenants.versions import raise_version


class DeskStore:
    """The engine's `ExchangeStore` over our rows. Each method is one short transaction in a thread."""

    def __init__(self, tenant_id: int) -> None:
        self._tenant_id = tenant_id

    async def business_info(self) -> Mapping[str, Any]:
        return await in_scope(self._tenant_id, lambda: desk().info)

    async def rates(self) -> Sequence[Rate]:
        return await in_scope(self._tenant_id, active_rates)

    async def verification(self, customer: str) -> Verification:
        return await in_scope(self._tenant_id, lambda: verification_of(customer))

    async def create_order(
        self, customer: str, rate: Rate, give_amount: Decimal, get_amount: Decimal, idempotency_key: str
    ) -> Order:
        def create() -> Order:
            row, _ = ExchangeOrder.objects.get_or_create(
                create_key=idempotency_key,
                defaults={
                    "contact_id": customer,
                    "give": rate.give,
                    "get": rate.get,
                    "give_amount": give_amount,
                    "get_amount": get_amount,
                    "needs_verification": rate.needs_verification(give_amount),
                },
            )
            return _order(row)

        return await in_scope(self._tenant_id, create)

    async def order(self, customer: str, order_id: str) -> Order | None:
        return await in_scope(self._tenant_id, lambda: _found(customer, order_id))

    async def requisites(self, order: Order) -> Mapping[str, Any] | None:
        def found() -> Mapping[str, Any] | None:
            row = ExchangeRequisites.objects.filter(currency=order.give).first()
            return row.details if row is not None else None

        return await in_scope(self._tenant_id, found)

    async def payment_received(self, order: Order) -> bool:
        """People mark payments; see `mark_paid`."""
        return await in_scope(
            self._tenant_id,
            lambda: ExchangeOrder.objects.filter(
                pk=int(order.id), state__in=(OrderState.PAID, OrderState.PAID_OUT)
            ).exists(),
        )

    async def pay_out(self, customer: str, order: Order, destination: str, idempotency_key: str) -> Order:
        def pay() -> Order:
            row = ExchangeOrder.objects.select_for_update().get(pk=int(order.id), contact_id=customer)
            if row.payout_key == idempotency_key:
                return _order(row)
            if row.state != OrderState.PAID:
                raise DeskError("wrong_state", f"order {order.id} is {row.state}; nothing is paid out")
            row.state, row.payout_key, row.destination = OrderState.PAID_OUT, idempotency_key, destination
            row.save(update_fields=["state", "payout_key", "destination", "updated_at"])
            audit.record(
                "order.paid_out", object_type="exchange_order", object_id=row.pk, detail={"key": idempotency_key}
            )
            return _order(row)

        return await in_scope(self._tenant_id, pay)


def desk() -> ExchangeDesk:
    return ExchangeDesk.objects.first() or ExchangeDesk()


def active_rates() -> list[Rate]:
    return [
        Rate(row.give, row.get, row.rate, row.min_amount, row.max_amount, row.verify_from, row.get_digits)
        for row in ExchangeRate.objects.filter(is_active=True).order_by("give", "get")
    ]


def verification_of(customer: str) -> Verification:
    found = ExchangeCustomer.objects.filter(contact_id=customer).values_list("verification", flat=True).first()
    return Verification(found) if found else Verification.NONE


@transaction.atomic
def save_rate(rate: ExchangeRate, *, actor: User, token: ApiToken | None = None) -> None:
    """Raises ValidationError."""
    rate.give, rate.get = rate.give.strip().upper(), rate.get.strip().upper()
    rate.full_clean()
    rate.save()
    detail = {"pair": str(rate), "rate": str(rate.rate), "active": rate.is_active}
    _changed("rate.saved", rate.pk, actor, token, detail)


@transaction.atomic
def delete_rate(rate: ExchangeRate, *, actor: User, token: ApiToken | None = None) -> None:
    _changed("rate.deleted", rate.pk, actor, token, {"pair": str(rate)})
    rate.delete()


@transaction.atomic
def set_info(info: dict[str, Any], *, actor: User, token: ApiToken | None = None) -> None:
    row = desk()
    row.info = info
    row.save()
    _changed("desk.changed", row.pk, actor, token, {"names": sorted(info)})


@transaction.atomic
def set_requisites(currency: str, details: dict[str, Any], *, actor: User, token: ApiToken | None = None) -> None:
    """Where customers pay in this currency; no details take it away. Raises ValidationError."""
    currency = currency.strip().upper()
    row = ExchangeRequisites.objects.filter(currency=currency).first() or ExchangeRequisites(currency=currency)
    row.details = details
    row.full_clean(exclude=["details"])
    if details:
        row.save()
    elif row.pk is not None:
        row.delete()
    _changed("requisites.set", currency, actor, token, {"currency": currency, "names": sorted(details)})


@transaction.atomic
def set_verification(
    contact_id: str, verification: Verification, *, actor: User, token: ApiToken | None = None
) -> None:
    row = ExchangeCustomer.objects.filter(contact_id=contact_id).first() or ExchangeCustomer(contact_id=contact_id)
    before, row.verification = row.verification, verification.value
    row.full_clean()
    row.save()
    detail = {"from": before, "to": verification.value}
    audit.record(
        "customer.verified",
        object_type="exchange_customer",
        object_id=row.pk,
        actor=actor,
        token=token,
        detail=detail,
    )


def move_order(order: ExchangeOrder, *, to: OrderState, actor: User, token: ApiToken | None = None) -> bool:
    """Mark a new order as paid, or cancel one that is not paid out. False if it is in another state by now."""
    sources = {OrderState.PAID: [OrderState.CREATED], OrderState.CANCELLED: [OrderState.CREATED, OrderState.PAID]}[to]
    moved = ExchangeOrder.objects.filter(pk=order.pk, state__in=sources).update(state=to)
    if moved:
        detail = {"from": order.state, "to": to.value}
        audit.record(
            f"order.{to}",
            object_type="exchange_order",
            object_id=order.pk,
            actor=actor,
            token=token,
            detail=detail,
        )
    return bool(moved)


def _found(customer: str, order_id: str) -> Order | None:
    if not order_id.isascii() or not order_id.isdigit() or len(order_id) > 18:
        return None
    row = ExchangeOrder.objects.filter(pk=int(order_id), contact_id=customer).first()
    return _order(row) if row is not None else None


def _order(row: ExchangeOrder) -> Order:
    return Order(
        str(row.pk),
        row.give,
        row.get,
        row.give_amount,
        row.get_amount,
        row.needs_verification,
        OrderState(row.state),
    )


def _changed(action: str, object_id: Any, actor: User, token: ApiToken | None, detail: dict[str, Any]) -> None:
    raise_version()
    audit.record(action, object_type="exchange_desk", object_id=object_id, actor=actor, token=token, detail=detail)
