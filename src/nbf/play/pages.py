"""What the server gives to a browser besides the websocket: a few files of this package, and nothing from elsewhere."""

from __future__ import annotations

import functools
from http import HTTPStatus
from importlib import resources

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/play.css": ("play.css", "text/css; charset=utf-8"),
    "/play.js": ("play.js", "text/javascript; charset=utf-8"),
    "/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "/dom.js": ("dom.js", "text/javascript; charset=utf-8"),
    "/problems.js": ("problems.js", "text/javascript; charset=utf-8"),
    "/cards.js": ("cards.js", "text/javascript; charset=utf-8"),
    "/chart.js": ("chart.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""Every path that there is: its file in `static`, and its type."""
SOCKET = "/socket"
"""The path of the websocket."""


@functools.cache
def _content(name: str) -> bytes:
    return (resources.files("nbf.play") / "static" / name).read_bytes()


def hosts(port: int) -> tuple[str, ...]:
    """List the names under which a browser on this machine reaches the server.

    Args:
        port: Of the server.

    Returns:
        Values of the header `Host`.
    """
    return f"127.0.0.1:{port}", f"localhost:{port}"


def response(request: Request, port: int) -> Response | None:
    """Answer a request for a file.

    Args:
        request: What a browser asks for.
        port: Of the server.

    Returns:
        The answer; None for the websocket, which goes on.
    """
    # A page elsewhere whose name was made to lead to this machine asks under that name.
    if request.headers.get_all("Host") not in [[host] for host in hosts(port)]:
        return _answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"This server answers to 127.0.0.1 alone.\n", port)
    path = request.path.partition("?")[0]
    if path == SOCKET:
        return None
    if path not in FILES:
        return _answer(HTTPStatus.NOT_FOUND, "text/plain", b"There is no such page; / is the playground.\n", port)
    name, kind = FILES[path]
    return _answer(HTTPStatus.OK, kind, _content(name), port)


def _answer(status: HTTPStatus, kind: str, body: bytes, port: int) -> Response:
    sockets = " ".join(f"ws://{host}" for host in hosts(port))
    policy = (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src {sockets}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = Headers(
        {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
            "Connection": "close",
        }
    )
    return Response(status.value, status.phrase, headers, body)
