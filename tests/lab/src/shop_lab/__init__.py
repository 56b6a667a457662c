"""The laboratory: everything that proves orders. No image contains it, and the product imports none of it."""

COMMANDS = {
    "prove": ("Check that orders survive faults.", "shop_lab.prove.command"),
    "faults": ("List faults, start and stop them in a laboratory.", "shop_lab.incidents.commands"),
    "incident": ("Run an incident with proof, and record it.", "shop_lab.incidents.commands"),
    "gameday": ("Find faults of a hidden schedule.", "shop_lab.incidents.gameday"),
}
"""Commands that `shop` gets, and their modules."""
