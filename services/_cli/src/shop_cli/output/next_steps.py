from pathlib import Path

from shop_cli.local.run_file import Run
from shop_cli.local.workspace import OWN_COMMAND
from shop_cli.output.printing import console, print_fields

_COMMANDS = ("products search kettle", "cart add ada copper-kettle --quantity 2", "order ada --trace")
EXAMPLES = "\n".join(f"  {OWN_COMMAND} {command}" for command in _COMMANDS)


def print_next_steps(run: Run, folder: Path | None) -> None:
    """Print links to a running shop, and commands to try. `folder` is its data folder; None means the repository."""
    console.print("\n[bold]The shop is ready.[/bold] Open")
    documents = f"{run.url('employee-api')}/docs" if run.url("employee-api") else ""
    links = {"shop": run.url("storefront") or "", "control room": run.link, "employee API": documents}
    if run.lab:
        links["faults to start"] = f"{run.control_room}/faults?token={run.token}"
    print_fields((f"  the {name}", link) for name, link in links.items())
    where = f" in {folder.resolve()}, where commands find this shop," if folder else ""
    console.out(f"and in another terminal{where} try for example\n{EXAMPLES}\n")
