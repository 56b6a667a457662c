"""Proxy settings. This module imports little, because every command needs it."""

import os

_VARIABLES = frozenset({"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"})


def ignore_proxies() -> None:
    """Remove proxies from the environment: gRPC, httpx and requests would use them even for peers and loopback."""
    for name in [name for name in os.environ if name.lower() in _VARIABLES]:
        del os.environ[name]
