"""The exchange desk as rows: what it is, its rates, where customers pay, who is verified, and orders."""

from decimal import Decimal
from typing import Any

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy, pgettext_lazy

from engine.tools.exchange import OrderState, Verification
from tenants.models.base import TenantManager, TenantModel, tenant_key

# How states are called; what is kept is the engine's own word.
IDENTITIES = [
    (Verification.NONE.value, pgettext_lazy("identity", "none")),
    (Verification.PENDING.value, pgettext_lazy("identity", "pending")),
    (Verification.VERIFIED.value, pgettext_lazy("identity", "verified")),
    (Verification.REJECTED.value, pgettext_lazy("identity", "rejected")),
]
ORDER_STATES = [
    (OrderState.CREATED.value, pgettext_lazy("order", "created")),
    (OrderState.PAID.value, pgettext_lazy("order", "paid")),
    (OrderState.PAID_OUT.value, pgettext_lazy("order", "paid_out")),
    (OrderState.CANCELLED.value, pgettext_lazy("order", "cancelled")),
]

CURRENCY = RegexValidator(r"^[A-Z0-9]{2,12}\Z", gettext_lazy("A currency is 2 to 12 capital letters and digits."))
_NOT_NEGATIVE = [MinValueValidator(Decimal(0))]


def _amount(**options: Any) -> models.DecimalField:
    """Money or coins: 16 digits before the point and 8 after it."""
    return models.DecimalField(max_digits=24, decimal_places=8, **options)


class ExchangeDesk(TenantModel):
    """One row a tenant: what the model tells customers of the desk."""

    info = models.JSONField(default=dict)

    objects = TenantManager["ExchangeDesk"]()

    class Meta:
        db_table = "exchange_desks"
        constraints = [
            tenant_key("exchange_desks"),
            models.UniqueConstraint(fields=["tenant"], name="exchange_desks_one_key"),
        ]

    def __str__(self) -> str:
        return "exchange desk"


class ExchangeRate(TenantModel):
    """A pair on offer. `verify_from`: amounts from which the customer must be verified; 0 always, none never."""

    give = models.CharField(max_length=12, validators=[CURRENCY])
    get = models.CharField(max_length=12, validators=[CURRENCY])
    rate = _amount(validators=[MinValueValidator(Decimal("0.00000001"))])
    min_amount = _amount(default=0, validators=_NOT_NEGATIVE)
    max_amount = _amount(validators=_NOT_NEGATIVE)
    verify_from = _amount(null=True, blank=True, validators=_NOT_NEGATIVE)
    get_digits = models.PositiveSmallIntegerField(default=2)
    is_active = models.BooleanField(default=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager["ExchangeRate"]()

    class Meta:
        db_table = "exchange_rates"
        constraints = [
            tenant_key("exchange_rates"),
            models.UniqueConstraint(
                fields=["tenant", "give", "get"],
                name="exchange_rates_pair_key",
                violation_error_message=gettext_lazy("There is a rate for this pair."),
            ),
            models.CheckConstraint(
                condition=models.Q(
                    rate__gt=0, min_amount__gte=0, max_amount__gte=models.F("min_amount"), get_digits__lte=8
                ),
                name="exchange_rates_amounts_check",
                violation_error_message=gettext_lazy(
                    "The largest amount is below the smallest one, or there are over 8 digits."
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.give} to {self.get}"


class ExchangeRequisites(TenantModel):
    """Where customers pay in one currency: names and values as they are told."""

    currency = models.CharField(max_length=12, validators=[CURRENCY])
    details = models.JSONField(default=dict)

    objects = TenantManager["ExchangeRequisites"]()

    class Meta:
        db_table = "exchange_requisites"
        constraints = [
            tenant_key("exchange_requisites"),
            models.UniqueConstraint(fields=["tenant", "currency"], name="exchange_requisites_currency_key"),
        ]

    def __str__(self) -> str:
        return f"requisites for {self.currency}"


class ExchangeCustomer(TenantModel):
    """Whether a contact's identity is verified."""

    contact_id = models.TextField()
    verification = models.TextField(choices=IDENTITIES)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager["ExchangeCustomer"]()

    class Meta:
        db_table = "exchange_customers"
        constraints = [
            tenant_key("exchange_customers"),
            models.UniqueConstraint(fields=["tenant", "contact_id"], name="exchange_customers_contact_key"),
            models.CheckConstraint(
                condition=models.Q(verification__in=[one.value for one in Verification]),
                name="exchange_customers_verification_check",
            ),
        ]

    def __str__(self) -> str:
        return f"customer {self.contact_id}"


class ExchangeOrder(TenantModel):
    """One order of one customer. The keys make a call that is repeated do nothing more."""

    contact_id = models.TextField()
    give = models.CharField(max_length=12)
    get = models.CharField(max_length=12)
    give_amount = _amount()
    get_amount = _amount()
    needs_verification = models.BooleanField()
    state = models.TextField(choices=ORDER_STATES, default=OrderState.CREATED)
    create_key = models.TextField()
    payout_key = models.TextField(null=True)
    destination = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager["ExchangeOrder"]()

    class Meta:
        db_table = "exchange_orders"
        constraints = [
            tenant_key("exchange_orders"),
            models.UniqueConstraint(fields=["tenant", "create_key"], name="exchange_orders_create_key"),
            models.UniqueConstraint(fields=["tenant", "payout_key"], name="exchange_orders_payout_key"),
            models.CheckConstraint(
                condition=models.Q(state__in=[one.value for one in OrderState]), name="exchange_orders_state_check"
            ),
        ]
        indexes = [models.Index(fields=["tenant", "-id"], name="exchange_orders_newest_idx")]

    def __str__(self) -> str:
        return f"order {self.pk}"
