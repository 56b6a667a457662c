"""Where do orders stop? States, recovery, retries, notifications, messages, records and declines."""

from functools import partial

from chassis.telemetry import semconv
from dashboards.frame import Section, new_dashboard
from dashboards.links import signals_of
from dashboards.panels import Limits, Query, graph, number
from dashboards.promql import increase, label, largest, legend, peak, quantile, rate, select

_STATE, _STEP = label(semconv.ORDER_STATE), label(semconv.ORDER_STEP)
_KIND, _MISMATCH = label(semconv.NOTIFICATION_KIND), label(semconv.MISMATCH_KIND)
_LETTER, _OUTCOME = label(semconv.LETTER_STATE), label(semconv.ATTEMPT_OUTCOME)
_DECLINE = label(semconv.DECLINE_REASON)
_PLACE_ORDER = f'{label(semconv.RPC_METHOD)}="shop.CheckoutService/PlaceOrder"'
_payment, _email, _checkout = (partial(graph, links=signals_of(name)) for name in ("payment", "email", "checkout"))


def _last_run(metric: semconv.Metric, by: str) -> str:
    # A run of the reconciliation exports its result once, every quarter of an hour.
    return f"max by ({by}) (max_over_time({select(metric.series[0])}[30m]))"


_STUCK = f'{_STATE}=~"NEEDS_REFUND|NEEDS_REVIEW"'
_ATTENTION = Section(
    "Does an operator have to act?",
    number(
        "Oldest open order",
        "Longest time since an open order last changed its state. Good: below 60 s.",
        "s",
        peak(semconv.OLDEST_OPEN_ORDER),
        limits=Limits(30, 60),
    ),
    number(
        "Orders that need an operator",
        "NEEDS_REFUND: a charge was not released. NEEDS_REVIEW: perhaps shipped. Good: 0. See `shop orders settle`.",
        "none",
        largest(semconv.ORDERS, _STATE, _STUCK),
        legend=legend(_STATE),
        limits=Limits(1, 10),
    ),
    number(
        "Oldest that needs an operator",
        "Longest time that an order has waited for an operator. Good: 0; above 5 min an alert fires.",
        "s",
        largest(semconv.OPERATOR_AGE, _STATE),
        legend=legend(_STATE),
        limits=Limits(60, 300),
    ),
    number(
        "Oldest notification",
        "Age of the oldest notification in the outbox. Good: below 1 min; above 5 min an alert fires.",
        "s",
        peak(semconv.OUTBOX_AGE),
        limits=Limits(60, 300),
    ),
    number(
        "Dead letters",
        "Notifications that failed for good. Good: 0. Send them again with `shop orders requeue`.",
        "none",
        largest(semconv.DEAD_LETTERS, _KIND),
        legend=legend(_KIND),
        limits=Limits(1, 10),
    ),
    number(
        "Records that disagree",
        "Orders, charges, shipments and messages, compared in the last run. Good: 0. See `shop reconcile`.",
        "none",
        f"sum({_last_run(semconv.MISMATCHES, _MISMATCH)}) or vector(0)",
        limits=Limits(1, 10),
    ),
    number(
        "Orders dated in the future",
        "Good: 0. More: the clock of checkout's database was set back.",
        "none",
        peak(semconv.FUTURE_ORDERS),
        limits=Limits(1, 10),
    ),
)

_PROGRESS = Section(
    "Do orders make progress?",
    _checkout(
        "Unfinished orders by state",
        "Every replica reports the journal, so this is a maximum. Good: a few, which change at once. A state that "
        "grows is where orders stop: its step's service is down or slow.",
        "none",
        Query(largest(semconv.ORDERS, _STATE), legend(_STATE)),
    ),
    _checkout(
        "Changes of state per second",
        "Good: each state as often as the one before it. CANCELLED or NEEDS_… only rarely.",
        "ops",
        Query(rate(semconv.ORDER_CHANGES, _STATE), legend(_STATE)),
    ),
    _checkout(
        "Duration of PlaceOrder",
        "Good: steady. Each dot is a traced call and links to its trace.",
        "s",
        *(
            Query(
                quantile(fraction, semconv.RPC_SERVER_DURATION, "", _PLACE_ORDER),
                f"{fraction:.0%} of orders are faster",
                exemplars=True,
            )
            for fraction in (0.5, 0.95, 0.99)
        ),
    ),
    _checkout(
        "Age of the oldest open order",
        "Good: below 60 s. It grows while orders wait for payment or shipping.",
        "s",
        Query(peak(semconv.OLDEST_OPEN_ORDER), "oldest open order"),
        limits=Limits(30, 60),
    ),
    _checkout(
        "Retries of steps in ten minutes",
        "Good: 0. The step tells which service does not respond.",
        "none",
        Query(increase(semconv.ORDER_RETRIES, _STEP, "10m"), legend(_STEP)),
    ),
    _checkout(
        "Orders taken over by recovery in ten minutes",
        "Orders whose caller or replica went away. Good: 0, except after a restart.",
        "none",
        Query(f"sum({increase(semconv.ORDERS_RECOVERED, 'service_name', '10m')})", "recovered"),
    ),
)

_AFTER = Section(
    "What follows an order?",
    _checkout(
        "Notifications in the outbox",
        "E-mails to send and carts to empty, and those that failed for good. Good: near 0. Growth: e-mail or cart is "
        "down.",
        "none",
        Query(peak(semconv.OUTBOX_BACKLOG), "waiting"),
        Query(largest(semconv.DEAD_LETTERS, _KIND), f"failed: {legend(_KIND)}"),
    ),
    _checkout(
        "Age of the oldest notification",
        "Good: below 1 min. Above 5 min an alert fires.",
        "s",
        Query(peak(semconv.OUTBOX_AGE), "oldest notification"),
        limits=Limits(60, 300),
    ),
    _email(
        "Messages not sent",
        "Good: near 0. QUEUED grows while the mail relay is down; REFUSED and IN_DOUBT need an operator. Without a "
        "relay messages are queued by design.",
        "none",
        Query(largest(semconv.LETTERS, _LETTER), legend(_LETTER)),
    ),
    _email(
        "Age of the oldest message that waits",
        "Good: below 1 min. Above 15 min an alert fires, if there is a relay.",
        "s",
        Query(peak(semconv.OLDEST_LETTER), "oldest message"),
        limits=Limits(60, 900),
    ),
    _email(
        "Attempts to send a message in ten minutes",
        "Good: all of them sent.",
        "none",
        Query(increase(semconv.EMAIL_ATTEMPTS, _OUTCOME, "10m"), legend(_OUTCOME)),
    ),
    _payment(
        "Declined charges in ten minutes",
        "Good: as usual. Cards decline; many at once are a fraud or a fault of payment.",
        "none",
        Query(increase(semconv.DECLINES, _DECLINE, "10m"), legend(_DECLINE)),
    ),
    graph(
        "Records that disagree by kind",
        "Result of the last run of the reconciliation. Good: 0.",
        "none",
        Query(_last_run(semconv.MISMATCHES, _MISMATCH), legend(_MISMATCH)),
        limits=Limits(1, 1),
        width=12,
    ),
    graph(
        "Orders compared",
        "By the last run of the reconciliation. Good: the orders of the last day. A gap: it does not run.",
        "none",
        Query(f"max({_last_run(semconv.RECONCILED_ORDERS, 'service_name')})", "orders"),
        width=12,
    ),
)

DASHBOARD = new_dashboard("orders", "Follows orders from payment to the message.", _ATTENTION, _PROGRESS, _AFTER)
