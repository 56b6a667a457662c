"""Is the shop well? Objectives, budgets, orders, revenue and alerts."""

from chassis.telemetry import semconv
from dashboards.frame import Section, new_dashboard
from dashboards.links import to_service
from dashboards.panels import Column, Limits, Query, graph, number, table
from dashboards.promql import HTTP_FAULT, failed_share, firing, increase, label, largest, legend, rate, select_rule

_CURRENCY = label(semconv.ORDER_CURRENCY)
_STATE = label(semconv.ORDER_STATE)
_STATUS = label(semconv.RPC_STATUS)
_SLO = "slo, service_name, objective"
_PLACE_ORDER = (f'service_name="checkout",{label(semconv.RPC_METHOD)}="shop.CheckoutService/PlaceOrder"',)
# One objective's budget for 30 days is gone after two days at this rate: the fastest alert on a budget.
_PAGE_BURN_RATE = 14.4


def _burn_rate(window: str) -> str:
    failed = f"max by ({_SLO}) ({select_rule(f'slo:errors:ratio_rate{window}')})"
    return f"{failed} / (1 - max by ({_SLO}) ({select_rule('slo:objective:ratio')}))"


_BUDGET = f"max by ({_SLO}) ({select_rule('slo:error_budget:remaining_ratio')})"

_NEEDS_OPERATOR = f'{_STATE}=~"NEEDS_REFUND|NEEDS_REVIEW"'
_NOW = Section(
    "Now",
    number(
        "Pages firing",
        "Alerts that wake somebody. Good: 0.",
        "short",
        f"count({firing('page')}) or vector(0)",
        limits=Limits(1, 1),
    ),
    number(
        "Tickets firing",
        "Alerts that can wait for working hours. Good: 0.",
        "short",
        f"count({firing('ticket')}) or vector(0)",
        limits=Limits(1, 10),
    ),
    number(
        "Least error budget left",
        "Of all objectives. Good: above 25 %. At 0 % the objective is missed in its window.",
        "percentunit",
        f"min({select_rule('slo:error_budget:remaining_ratio')})",
        limits=Limits(0.25, 0),
    ),
    number(
        "Orders per minute",
        "Good: as usual for the hour. Sudden silence is an outage, even if nothing fails.",
        "short",
        f"60 * sum({rate(semconv.ORDERS_PLACED, _CURRENCY)})",
    ),
    number(
        "Orders that need an operator",
        "Charges that could not be released, and shipments of unknown outcome. Good: 0.",
        "short",
        f"sum({largest(semconv.ORDERS, _STATE, _NEEDS_OPERATOR)}) or vector(0)",
        limits=Limits(1, 10),
    ),
    number(
        "Failed pages",
        "Share of the storefront's responses that are errors of the shop (5xx). Good: below 0.1 %.",
        "percentunit",
        failed_share(semconv.HTTP_SERVER_DURATION, "service_name", HTTP_FAULT, 'service_name="storefront"'),
        limits=Limits(0.001, 0.01),
    ),
)

_OBJECTIVES = Section(
    "Objectives and alerts",
    table(
        "Objectives",
        "One row per objective. Good: budget left, and a burn rate of 1 or less: at 1 the budget lasts exactly its "
        "window. Click a service to see why.",
        {"service_name": "Service", "slo": "Objective of", "objective": "Objective"},
        Column("Target", f"max by ({_SLO}) ({select_rule('slo:objective:ratio')})", "percentunit"),
        Column(
            "Met in the last hour", f"1 - max by ({_SLO}) ({select_rule('slo:errors:ratio_rate1h')})", "percentunit"
        ),
        Column("Burn rate, 5 min", _burn_rate("5m"), "short", Limits(1, _PAGE_BURN_RATE)),
        Column("Burn rate, 1 h", _burn_rate("1h"), "short", Limits(1, _PAGE_BURN_RATE)),
        Column("Budget left", _BUDGET, "percentunit", Limits(0.25, 0)),
        links=[to_service("${__value.text}")],
        height=12,
        width=16,
    ),
    table(
        "Alerts firing",
        "Good: none. Each alert has a runbook, linked from the alert in Prometheus and Alertmanager.",
        {"alertname": "Alert", "severity": "Severity", "service_name": "Service"},
        Column("Series", f"count by (alertname, severity, service_name) ({firing()})", "short"),
        height=12,
        width=8,
    ),
    graph(
        "Smallest error budgets",
        "Share of the failures that each objective allows in its window and that have not happened yet. Good: above "
        "25 %.",
        "percentunit",
        Query(f"bottomk(8, {_BUDGET})", "{{slo}} {{objective}}"),
        limits=Limits(0.25, 0),
        width=12,
    ),
    graph(
        "Highest burn rates over 5 minutes",
        "How many times faster than allowed the budget is spent. Good: at most 1. Above 14.4 for an hour a page is "
        "sent.",
        "short",
        Query(f"topk(8, {_burn_rate('5m')})", "{{slo}} {{objective}}"),
        limits=Limits(1, _PAGE_BURN_RATE),
        width=12,
    ),
)

_BUSINESS = Section(
    "Business",
    graph(
        "Orders per minute by outcome",
        "Calls of PlaceOrder. Good: nearly all OK. FAILED_PRECONDITION and INVALID_ARGUMENT are customers' mistakes "
        "and declined cards; other codes are faults of the shop.",
        "short",
        Query(f"60 * {rate(semconv.RPC_SERVER_DURATION, _STATUS, *_PLACE_ORDER)}", legend(_STATUS)),
        stacked=True,
    ),
    graph(
        "Revenue of the last hour",
        "Totals of placed orders, in units of their currency. Good: as usual for the hour.",
        "short",
        Query(increase(semconv.REVENUE, _CURRENCY, "1h"), legend(_CURRENCY)),
    ),
    graph(
        "From cart to order",
        "Per minute. Good: the three move together. More declines at the same number of orders: look at payment.",
        "short",
        Query(f"60 * sum({rate(semconv.CART_ITEMS_ADDED, 'service_name')})", "items added to carts"),
        Query(f"60 * sum({rate(semconv.ORDERS_PLACED, 'service_name')})", "orders placed"),
        Query(f"60 * sum({rate(semconv.DECLINES, 'service_name')})", "charges declined"),
    ),
)

DASHBOARD = new_dashboard(
    "overview", "The first look: if all is green here, the shop is well.", _NOW, _OBJECTIVES, _BUSINESS
)
