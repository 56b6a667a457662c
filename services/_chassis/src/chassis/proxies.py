import os

_VARIABLES = frozenset({"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"})


def ignore_proxies() -> None:
    """Unset proxy variables. Otherwise gRPC, httpx and requests would use proxies even for peers and for localhost."""
    for name in [name for name in os.environ if name.lower() in _VARIABLES]:
        del os.environ[name]
