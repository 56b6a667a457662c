"""Failpoints before and after each method that changes the ledger: see chassis.failpoints."""

_LEDGER = "shop.internal.PaymentLedger"
_METHODS = ("shop.PaymentService/Charge", f"{_LEDGER}/ResolveOrFence", f"{_LEDGER}/Void")
FAILPOINTS = tuple(f"{method}{suffix}" for method in _METHODS for suffix in ("", ".after"))
