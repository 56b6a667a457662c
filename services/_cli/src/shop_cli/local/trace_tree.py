"""A trace as a tree in the terminal: which service did what for whom, and how long it took."""

from collections import defaultdict
from collections.abc import Sequence

from rich.text import Text
from rich.tree import Tree

from shop_cli.local.otlp_receiver import Span

_NAME_WIDTH = 58


def trace_of(spans: Sequence[Span], name: str) -> list[Span]:
    """All spans of the trace that holds the first span of that name."""
    trace_id = next((span.trace_id for span in spans if span.name == name), None)
    return [span for span in spans if span.trace_id == trace_id]


def trace_tree(spans: Sequence[Span]) -> Tree:
    """The tree of one trace.

    A call has a span at either end: they are one line, with the callee's name and the time that the caller waited.
    """
    ids = {span.span_id for span in spans}
    children: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda each: each.started_nanos):
        children[span.parent_id if span.parent_id in ids else ""].append(span)
    begin = min((span.started_nanos for span in spans), default=0)
    end = max((span.ended_nanos for span in spans), default=0)
    tree = Tree(Text(f"{len(spans)} spans, {(end - begin) / 1e6:.1f} ms", style="bold"), guide_style="dim")
    for span in children[""]:
        _grow(tree, span, 1, children)
    return tree


def _grow(branch: Tree, span: Span, depth: int, children: dict[str, list[Span]]) -> None:
    told = next((child for child in children[span.span_id] if _answers(child, span)), span)
    grown = branch.add(_label(told, span.milliseconds, depth))
    for child in children[span.span_id]:
        if child is not told:
            _grow(grown, child, depth + 1, children)
    for child in children[told.span_id] if told is not span else ():
        _grow(grown, child, depth + 1, children)


def _answers(callee: Span, caller: Span) -> bool:
    return (caller.kind, callee.kind) == ("CLIENT", "SERVER")


def _label(span: Span, milliseconds: float, depth: int) -> Text:
    """Service, method and duration, the durations of all depths below each other."""
    label = Text.assemble((f"{span.service} ", "bold cyan"), span.name.removeprefix("shop."))
    label.pad_right(max(1, _NAME_WIDTH - 4 * depth - len(label)))
    label.append(f"{milliseconds:7.1f} ms", style="red" if span.failed else "green")
    return label
