"""Failpoints before and after each method that changes the manifest: see chassis.failpoints."""

_METHODS = ("shop.ShippingService/ShipOrder", "shop.internal.ShipmentManifest/ResolveOrFence")
FAILPOINTS = tuple(f"{method}{suffix}" for method in _METHODS for suffix in ("", ".after"))
