"""A trace as a tree in the terminal: which service did what for whom, and how long it took."""

from collections import defaultdict
from collections.abc import Sequence

from rich.text import Text
from rich.tree import Tree

from shop_cli.receiver import Span

_NAME_WIDTH = 58


def trace_of(spans: Sequence[Span], name: str) -> list[Span]:
    """All spans of the trace that holds the first span of that name."""
    trace_id = next((span.trace_id for span in spans if span.name == name), None)
    return [span for span in spans if span.trace_id == trace_id]


def trace_tree(spans: Sequence[Span]) -> Tree:
    """The tree of one trace.

    A call has a span at either end: the caller's is left out where the callee told its own.
    """
    ids = {span.span_id for span in spans}
    children: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda each: each.started_nanos):
        children[span.parent_id if span.parent_id in ids else ""].append(span)
    begin = min((span.started_nanos for span in spans), default=0)
    end = max((span.ended_nanos for span in spans), default=0)
    tree = Tree(Text(f"{len(spans)} spans, {(end - begin) / 1e6:.1f} ms", style="bold"), guide_style="dim")
    _grow(tree, "", 1, children)
    return tree


def _grow(branch: Tree, parent_id: str, depth: int, children: dict[str, list[Span]]) -> None:
    for span in children[parent_id]:
        answered = span.kind == "CLIENT" and any(child.kind == "SERVER" for child in children[span.span_id])
        if answered:
            _grow(branch, span.span_id, depth, children)
        else:
            _grow(branch.add(_label(span, depth)), span.span_id, depth + 1, children)


def _label(span: Span, depth: int) -> Text:
    """Service, method and duration, the durations of all depths below each other."""
    label = Text.assemble((f"{span.service} ", "bold cyan"), span.name.removeprefix("shop."))
    label.pad_right(max(1, _NAME_WIDTH - 4 * depth - len(label)))
    label.append(f"{span.milliseconds:7.1f} ms", style="red" if span.failed else "green")
    return label
