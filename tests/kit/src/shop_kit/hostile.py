"""Requests that have a text, such as the number of a card, in every place where a client can put one."""

import asyncio
import ssl

from chassis.tls.certificates import Certificates
from shop_kit.http2 import CONTINUATION, HEADERS, PREFACE, call, frame, header, message

_TRACEPARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"
_HEADERS = {
    "traceparent": "00-{0}-{0}-01",
    "baggage": "{0},{0}",
    **dict.fromkeys(
        ("tracestate", "x-request-id", "cookie", "authorization", "user-agent", "referer", "origin", "forwarded"), "{0}"
    ),
    **dict.fromkeys(("x-forwarded-for", "x-forwarded-proto", "accept-language", "content-type", "range"), "{0}"),
}


def http_requests(text: str) -> list[bytes]:
    """Return requests of HTTP/1.1, most of them malformed."""
    plain = "Host: localhost\r\nConnection: close\r\n"
    lines = [
        *(f"GET / HTTP/1.1\r\n{plain}{name}: {value.format(text)}\r\n\r\n" for name, value in _HEADERS.items()),
        *(
            f"GET / HTTP/1.1\r\n{plain}traceparent: {_TRACEPARENT}\r\n{line}\r\n\r\n"
            for line in (f"tracestate: {text}", f"tracestate: a={text}", f"baggage: session.id={text}")
        ),
        *(f"{method} /{text}?{text}={text} HTTP/1.1\r\n{plain}\r\n" for method in ("GET", text)),
        f"GET / HTTP/{text}\r\n{plain}\r\n",
        f"GET / HTTP/1.1\r\nHost: {text}\r\nConnection: close\r\n\r\n",
        f"GET / HTTP/1.1\r\n{plain}{text}\r\n\r\n",
        f"{text}\r\n\r\n",
        f"POST /{text} HTTP/1.1\r\n{plain}Content-Length: {text}\r\n\r\n",
        f"POST /cart HTTP/1.1\r\n{plain}Transfer-Encoding: chunked\r\n\r\n{text}\r\n",
        *(
            f"POST {path} HTTP/1.1\r\n{plain}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            for path in ("/cart", "/checkout", "/api/auth/login", "/api/auth/register")
            for kind in (
                "application/json",
                "application/x-www-form-urlencoded",
                f"multipart/form-data; boundary={text}",
            )
            for body in (text, f'{{"email": "{text}", "{text}": {text}}}', f"{text}={text}&key={text}")
        ),
    ]
    return [line.encode() for line in lines]


def grpc_calls(text: bytes, path: bytes) -> list[bytes]:
    """Return what connections to a gRPC port send, of which one calls this path and the others are malformed."""
    metadata = {name.replace("-", "_"): value.format(text.decode()).encode() for name, value in _HEADERS.items()}
    metadata |= dict.fromkeys(("grpc_encoding", "grpc_timeout", "grpc_previous_rpc_attempts", "x_bin", "te"), text)
    metadata |= {text.decode(): text, "idempotency_key": text}
    calls = [{name: value} for name, value in metadata.items()]
    calls.append({"traceparent": _TRACEPARENT.encode(), "tracestate": text})
    body = message(b"\x0a%c%b" % (len(text), text))
    return [
        b"GET /%b HTTP/1.1\r\n\r\n" % text,
        *(PREFACE + call(path, body=body, metadata=sent) for sent in calls),
        *(PREFACE + call(other, body=body) for other in (b"/" + text, path + text, text, b"/%b/%b" % (text, text))),
        *(PREFACE + call(path, body=sent) for sent in (message(text), text, b"\1" + message(text)[1:])),
        PREFACE + call(b"/grpc.health.v1.Health/Check", body=body),
        PREFACE + call(b"/grpc.health.v1.Health/Watch", body=message(text)),
        PREFACE + call(b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", body=message(text)),
        PREFACE + frame(HEADERS, 5, 1, text),
        PREFACE + frame(HEADERS, 1, 1, call(path)[9:]) + frame(CONTINUATION, 4, 1, header(text, text)),
        PREFACE + frame(6, 0, 0, text),
    ]


async def send(port: int, sent: bytes, certificates: Certificates | None = None) -> None:
    """Send bytes on a connection of their own; wait for the first answer, or half a second without any."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=_tls(certificates) if certificates else None)
    writer.write(sent)
    try:
        async with asyncio.timeout(0.5):
            await reader.read(200)
    except (TimeoutError, ConnectionError):
        pass
    writer.transport.abort()


def _tls(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.folder / "ca.crt"))
    context.load_cert_chain(certificates.folder / "tls.crt", certificates.folder / "tls.key")
    context.set_alpn_protocols(["h2"])
    return context
