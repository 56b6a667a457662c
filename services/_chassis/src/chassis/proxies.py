"""HTTP proxies, in a module that imports little, because every command does this."""

import os

_VARIABLES = frozenset({"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"})


def ignore_proxies() -> None:
    """Remove proxies from this process's environment: gRPC, httpx and requests use them for peers and loopback too."""
    for name in [name for name in os.environ if name.lower() in _VARIABLES]:
        del os.environ[name]
