"""Write the dashboards: `python charts/dashboards`. With `--check` only report those that are not up to date."""

import json
import sys
from importlib import import_module
from pathlib import Path

CHARTS = Path(__file__).parents[1]
sys.path[0] = str(CHARTS)

from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402

from dashboards.frame import TITLES  # noqa: E402

OUTPUT = CHARTS / "shop" / "dashboards"


def contents() -> dict[Path, str]:
    """Return what each file has to contain."""
    built = {OUTPUT / f"{name}.json": import_module(f"dashboards.{name}").DASHBOARD for name in TITLES}
    return {path: json.dumps(dashboard, cls=JSONEncoder, indent=2) + "\n" for path, dashboard in built.items()}


def main() -> int:
    """Write or check; return 1 if a check finds a difference."""
    wanted = contents()
    present = {path: path.read_text() for path in OUTPUT.glob("*.json")}
    if "--check" in sys.argv[1:]:
        differ = sorted(str(path) for path in wanted.keys() | present.keys() if wanted.get(path) != present.get(path))
        sys.stderr.writelines(f"{path} is not what its module builds: run make dashboards\n" for path in differ)
        return 1 if differ else 0
    for path in present.keys() - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
