import os

_VARIABLES = frozenset({"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"})


def ignore_proxies() -> None:
    """Remove proxies from the environment, or gRPC, httpx and requests would use them for peers and loopback too."""
    for name in [name for name in os.environ if name.lower() in _VARIABLES]:
        del os.environ[name]
