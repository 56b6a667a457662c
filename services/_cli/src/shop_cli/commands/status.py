from typing import Any

from shop_cli import control_room_client
from shop_cli.commands.options import Json
from shop_cli.output.printing import console, counted, print_fields, print_json, print_table


def status(*, as_json: Json = False) -> None:
    """Show the running shop's services, their calls in the last minute, and whether all records agree."""
    found = control_room_client.status()
    if as_json:
        print_json(found)
        return
    columns = ["Service", "State", "Calls/s ", "Errors/s ", "p50 ms ", "p99 ms ", "Restarts ", "Port"]
    print_table(columns, map(_row, found["services"]))
    console.out()
    control_room = control_room_client.require_run().link
    proof = ("last 15 minutes", _reconciliation(found["reconciliation"]))
    print_fields([proof, ("storefront", found["storefront"] or ""), ("control room", control_room)])


def _row(service: dict[str, Any]) -> list[str]:
    numbers = [f"{service[name]:.1f}" for name in ("rate", "error_rate", "p50_milliseconds", "p99_milliseconds")]
    port = service["address"].rpartition(":")[2]  # whole addresses would be too wide for 80 columns
    return [service["name"], service["state"], *numbers, str(service["restarts"]), port]


def _reconciliation(found: dict[str, Any]) -> str:
    if found["unread"]:
        return f"records not read: {found['unread']}"
    text = (
        "{orders} orders: {complete} complete, {declined} declined, {closed} closed, {in_progress} in progress; "
        "{charges} charges, {shipments} shipments, {confirmations} confirmations; "
    ).format(**found)
    return text + counted(len(found["mismatches"]), "mismatch", "mismatches")
