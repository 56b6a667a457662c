"""States as commands print and accept them: without the prefix that their enum has in the contract."""

from typing import Any

import typer


def state_name(states: Any, state: int) -> str:
    return str(states.Name(state)).removeprefix(_prefix(states))


def parse_state(states: Any, name: str) -> Any:
    """Return the state of a protobuf enum with this name. Raise BadParameter, which lists all names."""
    if (full_name := _prefix(states) + name.upper()) in states.keys():  # noqa: SIM118 - no mapping
        return states.Value(full_name)
    expected = ", ".join(key.removeprefix(_prefix(states)) for key in states.keys()[1:])
    raise typer.BadParameter(f"unknown state {name}: expected one of {expected}", param_hint="--state")


def _prefix(states: Any) -> str:
    return str(states.keys()[0]).removesuffix("UNSPECIFIED")
