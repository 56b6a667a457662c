from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text
from rich.tree import Tree

from chassis.telemetry import semconv
from shop_cli.local.spans import Span, tree_order
from shop_cli.output.printing import counted

_WIDTH = 68
_DURATION_WIDTH = 10
_INDENT = 4


def trace_tree(spans: Sequence[Span], width: int = _WIDTH) -> Tree:
    """Return a tree that shows which service called which method, and how long each call took."""
    start = min((span.started_nanos for span in spans), default=0)
    end = max((span.ended_nanos for span in spans), default=0)
    calls = _calls(spans)
    counts = Counter(map(_kind, calls)).items()
    title = ", ".join([*(counted(count, kind) for kind, count in counts), f"{(end - start) / 1e6:.1f} ms"])
    tree = Tree(Text(title, style="bold"), guide_style="dim")
    branches = [tree]
    for depth, span in tree_order(calls):
        label = _label(span, min(width, _WIDTH) - _INDENT * (depth + 1))
        branches[depth + 1 :] = [branches[depth].add(label)]
    return tree


def _calls(spans: Sequence[Span]) -> list[Span]:
    """Merge each call's client and server spans into one server span that has the client span's times and parent."""
    clients = {span.span_id: span for span in spans if span.kind == "CLIENT"}
    servers = {span.parent_id: span for span in spans if span.kind == "SERVER" and span.parent_id in clients}
    calls = []
    for span in spans:
        if span.span_id in servers:
            continue
        server, call = servers.get(span.parent_id), span
        if server is span:
            client = clients[span.parent_id]
            start, end = client.started_nanos, client.ended_nanos
            call = replace(span, parent_id=client.parent_id, started_nanos=start, ended_nanos=end)
        elif server is not None:
            call = replace(span, parent_id=server.span_id)
        calls.append(call)
    return calls


def _kind(span: Span) -> str:
    if semconv.DB_SYSTEM in span.attributes:
        return "statement"
    return "wait" if span.kind == "INTERNAL" else "call"


def _label(span: Span, width: int) -> Text:
    """Return a span's service, method and duration, padded so that durations at all depths align."""
    name, name_width = span.name.removeprefix("shop."), width - _DURATION_WIDTH
    if len(span.service) + 1 + len(name) > name_width:
        name = name.rpartition("/")[2]  # show only the method, because the label already names the service
    label = Text.assemble((f"{span.service} ", "bold cyan"), name)
    label.truncate(name_width - 1, overflow="ellipsis", pad=True)
    label.append(f" {span.milliseconds:7.1f} ms", style="red" if span.failed else "green")
    return label
