"""The five incidents: what starts, what must fire, and the questions that lead from the overview to the cause."""

from collections.abc import Callable, Mapping

from incidents import (
    Incident,
    Question,
    add_failing_replica,
    feed_checkout,
    kill_valkey,
    lock_charges,
    remove_failing_replica,
    start_relay,
    start_valkey,
    starve_checkout,
    stop_relay,
)

Answer = Callable[[Mapping[str, float]], bool]
_FAST_BURN = 14.4


def some(text: str, over: float) -> Answer:
    """Return whether a series whose legend contains the text is above a value."""
    return lambda values: any(text in series and value > over for series, value in values.items())


def largest(text: str, over: float) -> Answer:
    """Return whether the largest series contains the text, and is above a value."""

    def answer(values: Mapping[str, float]) -> bool:
        found = max(values, key=lambda series: values[series], default="")
        return text in found and values[found] > over

    return answer


def only(text: str, column: str, over: float) -> Answer:
    """Return whether in a table's column only rows with the text are above a value, and one is."""

    def answer(values: Mapping[str, float]) -> bool:
        above = [series for series, value in values.items() if series.endswith(column) and value > over]
        return bool(above) and all(text in series for series in above)

    return answer


def burns(slo: str) -> Question:
    """The first question: which objective is being missed?"""
    conclusion = f"{slo} burns its budget"
    return Question("overview", "Highest burn rates over 5 minutes", some(slo, _FAST_BURN), conclusion)


INCIDENTS = (
    Incident(
        "payment's table locked for 60 s",
        lock_charges,
        None,
        "DatabaseFails(payment)",
        150,
        frozenset({"ErrorBudgetBurn(place-order)", "ErrorBudgetBurn(storefront)"}),
        (
            burns("place-order"),
            Question(
                "services",
                "Calls between services",
                some("shop-payment: Failed", 0.3),
                "checkout's calls to payment fail",
            ),
            Question(
                "service",
                "Failed database operations per second",
                some("postgresql", 0),
                "its database does not answer in time",
                "payment",
            ),
            Question(
                "stores",
                "Failed operations",
                largest("payment", 0.05),
                "only payment's operations fail: not the server, but its table",
            ),
        ),
        hold_seconds=65,
    ),
    Incident(
        "one of three replicas of product-catalog fails",
        add_failing_replica,
        remove_failing_replica,
        "ReplicaFails(product-catalog)",
        240,
        frozenset(f"ErrorBudgetBurn({slo})" for slo in ("get-product", "place-order", "storefront")),
        (
            burns("get-product"),
            Question("services", "Failed requests", some("product-catalog", 0.05), "product-catalog itself fails"),
            Question(
                "service",
                "Failures per second by method and status",
                some("GetProduct INTERNAL", 0),
                "GetProduct fails with INTERNAL",
                "product-catalog",
            ),
            Question(
                "service",
                "Pods side by side",
                only("product-catalog-failing", "Failed", 0.2),
                "one pod fails every call, its siblings none",
                "product-catalog",
            ),
        ),
    ),
    Incident(
        "mail relay down",
        stop_relay,
        start_relay,
        "MailRelayFails",
        300,
        frozenset(),
        (
            Question("overview", "Alerts firing", some("MailRelayFails", 0), "no objective is missed; e-mail waits"),
            Question(
                "orders",
                "Attempts to send a message in ten minutes",
                some("NOT_SENT", 0),
                "attempts fail for every letter: the relay takes none",
            ),
            Question("orders", "Age of the oldest message that waits", some("", 20), "letters wait, none is lost"),
        ),
    ),
    Incident(
        "Valkey killed",
        kill_valkey,
        start_valkey,
        "DatabaseFails(cart)",
        180,
        frozenset(f"ErrorBudgetBurn({slo})" for slo in ("storefront", "place-order", "get-cart", "add-item")),
        (
            burns("place-order"),
            Question(
                "services", "Calls between services", some("shop-cart: Failed", 0.3), "calls to the cart service fail"
            ),
            Question(
                "service",
                "Failed database operations per second",
                some("redis", 0),
                "its Valkey does not answer",
                "cart",
            ),
        ),
    ),
    Incident(
        "checkout starved of CPU",
        starve_checkout,
        feed_checkout,
        "EventLoopLags(checkout)",
        360,
        frozenset({"ErrorBudgetBurn(place-order)", "ErrorBudgetBurn(storefront)", "OrderOpenTooLong"}),
        (
            burns("place-order"),
            Question("services", "Duration, 99th percentile", some("checkout", 1), "checkout is slow"),
            Question(
                "services",
                "Event-loop lag, 99th percentile",
                largest("checkout", 0.1),
                "its event loop lags, those of its callees do not",
            ),
            Question(
                "service", "CPU by pod", some("checkout", 0), "its pod gets only a part of its CPU limit", "checkout"
            ),
        ),
    ),
)
