"""Frames of HTTP/2, for clients that break its rules or gRPC's."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
"""What a client sends first, with a frame of no settings."""


def call(path: bytes = b"/grpc.health.v1.Health/Check", **metadata: bytes) -> bytes:
    """Return the frame that begins and half-closes a call; underscores in names of metadata become hyphens."""
    headers = {b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"test"}
    headers |= {b"content-type": b"application/grpc", b"te": b"trailers"}
    headers |= {name.replace("_", "-").encode(): value for name, value in metadata.items()}
    # HPACK's literal form: each header has two lengths of one byte.
    block = b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in headers.items())
    return len(block).to_bytes(3, "big") + bytes.fromhex("010500000001") + block
