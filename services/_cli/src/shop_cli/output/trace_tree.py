"""Render a trace as a tree: which service called which method, and how long each call took."""

from collections.abc import Sequence

from rich.text import Text
from rich.tree import Tree

from shop_cli.local.otlp_receiver import Span, children_by_parent

_WIDTH = 68
_DURATION_WIDTH = 10
_INDENT = 4


def trace_of(spans: Sequence[Span], name: str) -> list[Span]:
    """Return all spans of the trace that contains the first span of that name."""
    trace_id = next((span.trace_id for span in spans if span.name == name), None)
    return [span for span in spans if span.trace_id == trace_id]


def trace_tree(spans: Sequence[Span], width: int = _WIDTH) -> Tree:
    """Return the tree of one trace, for a terminal of that many columns.

    A call has a client span and a server span. Both are one line, with the server's service and the client's duration.
    """
    children = children_by_parent(spans)
    start = min((span.started_nanos for span in spans), default=0)
    end = max((span.ended_nanos for span in spans), default=0)
    tree = Tree(Text(f"{len(spans)} spans, {(end - start) / 1e6:.1f} ms", style="bold"), guide_style="dim")
    for span in children[""]:
        _add_branch(tree, span, min(width, _WIDTH) - _INDENT, children)
    return tree


def _add_branch(parent: Tree, span: Span, width: int, children: dict[str, list[Span]]) -> None:
    server_span = next((child for child in children[span.span_id] if _is_server_of(child, span)), span)
    branch = parent.add(_label(server_span, span.milliseconds, width))
    for child in children[span.span_id]:
        if child is not server_span:
            _add_branch(branch, child, width - _INDENT, children)
    for child in children[server_span.span_id] if server_span is not span else ():
        _add_branch(branch, child, width - _INDENT, children)


def _is_server_of(callee: Span, caller: Span) -> bool:
    return (caller.kind, callee.kind) == ("CLIENT", "SERVER")


def _label(span: Span, milliseconds: float, width: int) -> Text:
    """Return service, method and duration; durations at all depths are in one column."""
    name, name_width = span.name.removeprefix("shop."), width - _DURATION_WIDTH
    if len(span.service) + 1 + len(name) > name_width:
        name = name.rpartition("/")[2]  # the service was named before it
    label = Text.assemble((f"{span.service} ", "bold cyan"), name)
    label.pad_right(max(1, name_width - len(label)))
    label.append(f"{milliseconds:7.1f} ms", style="red" if span.failed else "green")
    return label
