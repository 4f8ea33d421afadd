"""Run the playground until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
from collections.abc import Callable

from nbf.compiling import without_alarms
from nbf.play.access import key_file, user_key
from nbf.play.server import Playground

INTERRUPTED = 130
"""The exit code after a second Ctrl-C, as that of a shell's command."""


def _at_a_signal(act: Callable[[], object]) -> None:
    """Do something at Ctrl-C, and when the process is asked to end, in place of what was to be done before."""
    for name in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C is then a KeyboardInterrupt
            asyncio.get_running_loop().add_signal_handler(name, act)


def played(port: int, say: Callable[[str], None], opened: Callable[[str], object] | None = None) -> str:
    """Serve the playground until Ctrl-C, or until the process is asked to end.

    Args:
        port: The first that is tried; 0 is any that is free.
        say: Where lines for the terminal go.
        opened: Called with the address once the server listens; None for nothing.

    Returns:
        The address without its token.
    """

    async def serve() -> str:
        playground, stop = Playground(user_key(key_file()), say=say), asyncio.Event()
        server = await playground.start(port)
        _at_a_signal(stop.set)
        if port and playground.port != port:
            say(f"port {port} is in use; this is {playground.port}")
        say(f"open {playground.address}")
        say("the browser that opens it first keeps it, also when it reloads the page; Ctrl-C stops the server")
        playground.warm()
        try:
            if opened is not None:
                opened(playground.address)
            await stop.wait()
        finally:
            say("stopping, as soon as what is being compiled is done; Ctrl-C again ends it at once")
            _at_a_signal(functools.partial(os._exit, INTERRUPTED))
            await playground.stop(server)
        return f"http://127.0.0.1:{playground.port}/"

    with without_alarms():
        return asyncio.run(serve())
