"""Lays out the map of calls between services, and draws sparklines."""

from collections.abc import Collection, Sequence

_ROW_PIXELS = 50
_MAX_COLUMN = 3  # the last column's index: a map with four columns still fits on a phone


def places(calls: Collection[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Return each service's position on the map: x as a percentage of the width, y in pixels from the top.

    Services are to the right of their callers, unless the map runs out of columns.
    """
    column = {name: 0 for names in calls for name in names}
    for _ in range(_MAX_COLUMN):
        for caller, callee in calls:
            column[callee] = min(_MAX_COLUMN, max(column[callee], column[caller] + 1))
    columns = [[name for name in sorted(column) if column[name] == number] for number in sorted({*column.values()})]
    # On a wide screen, the table of calls is next to the map, so make the map at least as tall as the table.
    height = max(_ROW_PIXELS * max(map(len, columns), default=0), 33 * len(calls))
    return {
        name: (11 + 74 * number / max(1, len(columns) - 1), height * (row + 0.6) / len(names))
        for number, names in enumerate(columns)
        for row, name in enumerate(names)
    }


def sparkline(values: Sequence[float]) -> str:
    """Return the values as the points of an SVG polyline that is 60 wide and 16 high."""
    highest, step = max(values) or 1.0, 60 / (len(values) - 1)
    return " ".join(f"{step * index:.0f},{15 - 14 * value / highest:.1f}" for index, value in enumerate(values))
