"""Checks the log of a load generator: exits 1 unless customers ordered, no page failed and nobody was turned away.

`python customers.py LOG` prints the summary that the load generator prints when it ends.
"""

import json
import sys
from pathlib import Path


def main(log: Path) -> int:
    """Print the summary; return 0 if all customers were served."""
    events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    summaries = [event for event in events if event.get("event") == "summary"]
    if not summaries:
        print(f"no summary in {log}")  # noqa: T201
        return 1
    (summary,) = summaries
    for page in summary.pop("pages"):
        print("{requests:>6} requests, {failures} failed, p99 {p99_ms} ms: {page}".format_map(page))  # noqa: T201
    print(json.dumps(summary))  # noqa: T201
    return 0 if summary["orders"] and not summary["errors"] and not summary["dropped"] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
