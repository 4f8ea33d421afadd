"""The server of the playground: a page and a websocket, on this machine alone. Needs the extra `play`.

The first message of a page shows a token or a pass (`access`); then each message is answered by a frame, a file or an
error, in order. An error changes nothing: the session goes on.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import errno
import functools
import json
import logging
import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Origin

from nbf.errors import InputError
from nbf.play import pages
from nbf.play.access import Access, Rate
from nbf.play.messages import LONGEST, Message, parsed
from nbf.play.problems import PROBLEMS
from nbf.play.programs import COMPILING, Programs
from nbf.play.script import script
from nbf.play.session import MAX_SEED, Session
from nbf.play.telling import frame_message, greeting

ADDRESS = "127.0.0.1"
SESSIONS = 10
"""Pages at once."""
PER_SECOND, AT_ONCE = 40.0, 80.0
"""Messages of a page."""
PATIENCE = 10.0
"""Seconds for the first message."""
TRIED = 20
"""Ports that are tried, one after the other."""
REFUSED, FULL = 4001, 4002
"""Codes with which a websocket is closed: no token or pass; too many pages."""


class Playground:
    """The server, and what its sessions share."""

    def __init__(self, key: bytes, *, say: Callable[[str], None] = print, programs: Programs | None = None):
        """Prepare a server.

        Args:
            key: That signs passes.
            say: Where a line for the terminal goes.
            programs: Compiled programs to share; None starts with none.
        """
        self.access, self.say = Access(key), say
        self.programs = Programs() if programs is None else programs
        self.port, self._open = 0, 0
        self._workers = ThreadPoolExecutor(4, "nbf-play")
        self._stopping = threading.Event()

    @property
    def address(self) -> str:
        """Where a browser finds the page, with the token, which is good once."""
        return f"http://{ADDRESS}:{self.port}/?token={self.access.token}"

    async def start(self, port: int) -> Server:
        """Listen on a port, or on the next one that is free.

        Args:
            port: The first that is tried; 0 is any.

        Returns:
            The server, which is closed with `stop`.
        """
        for candidate in range(port, min(port + TRIED, 65536)) if port else (0,):
            try:
                return await self._listening(candidate)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise InputError(
                        f"Port {candidate} of {ADDRESS} cannot be used ({error.strerror or error}); name another one "
                        "with --port."
                    ) from None
        raise InputError(f"The ports {port} to {port + TRIED - 1} are all in use; name another one with --port.")

    async def stop(self, server: Server) -> None:
        """Close all pages, and wait for what is being computed.

        Args:
            server: What `start` returned.
        """
        self._stopping.set()
        server.close()
        await server.wait_closed()
        await asyncio.to_thread(self._workers.shutdown, wait=True, cancel_futures=True)

    def warm(self) -> None:
        """Compile the default filters of every problem in the background, one problem after the other."""

        def work() -> None:
            for problem in PROBLEMS.values():
                for role, count in problem.counts(problem.defaults()).items():
                    if self._stopping.is_set():
                        return
                    self.programs.of(problem, role, count)

        self._workers.submit(work)

    async def _listening(self, port: int) -> Server:
        # A socket first, since the origins that are allowed name its port.
        found = socket.create_server((ADDRESS, port))
        self.port = found.getsockname()[1]
        quiet = logging.getLogger("nbf.play")
        quiet.setLevel(logging.CRITICAL)  # a browser that leaves is no news
        origins = [Origin(f"http://{host}") for host in pages.hosts(self.port)]
        return await serve(
            self._connected, sock=found, origins=origins, process_request=self._asked, compression=None,
            max_size=4 * LONGEST, max_queue=16, logger=quiet, open_timeout=PATIENCE, close_timeout=1,
            server_header=None,
        )  # fmt: skip

    def _asked(self, connection: ServerConnection, request: Request) -> Response | None:
        return pages.response(request, self.port)

    async def _connected(self, page: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            hello = await self._admitted(page)
            if hello is None:
                return
            try:
                await self._played(page, hello)
            finally:
                self._open -= 1

    async def _admitted(self, page: ServerConnection) -> Message | None:
        """The first message of a page that may play; others are told why not."""
        try:
            async with asyncio.timeout(PATIENCE):
                hello = parsed(await page.recv())
            if hello.type != "hello":
                raise InputError("The first message of a page is 'hello'.")
        except (InputError, TimeoutError) as error:
            await _send(page, {"type": "refused", "text": str(error) or "No message came."})
            await page.close(REFUSED)
            return None
        if self._open >= SESSIONS:
            text = f"{SESSIONS} pages are open, which is the most: close one, then load this page again."
            await _send(page, {"type": "refused", "text": text})
            await page.close(FULL)
            return None
        token = self.access.token
        granted = self.access.admit(hello["pass"])
        if granted is None:
            text = "This address was used already, or is of another server. Open the one that `nbf play` printed last."
            await _send(page, {"type": "refused", "text": text})
            await page.close(REFUSED)
            return None
        self._open += 1  # before anything is waited for, so that no two pages take the last place
        if self.access.token != token:
            self.say(f"a page has connected; for another browser: {self.address}")
        await _send(page, greeting() | {"pass": granted})
        return hello

    async def _played(self, page: ServerConnection, hello: Message) -> None:
        """Answer the messages of one page until it leaves."""
        session = None
        if hello["recipe"] is not None:
            session = await self._answered(page, lambda: Session.restored(self.programs, hello["recipe"]))
        if not isinstance(session, Session):
            first = next(iter(PROBLEMS))
            session = await self._answered(page, lambda: self._new(first, secrets.randbelow(MAX_SEED)))
        if not isinstance(session, Session):
            return
        await _send(page, await self._answered(page, functools.partial(frame_message, session)))
        rate, told = Rate(PER_SECOND, AT_ONCE), 0.0
        async for text in page:
            now = time.monotonic()
            if not rate.take(now):
                if now - told > 1.0:
                    told = now
                    await _send(page, _error(f"Too many messages: up to {PER_SECOND:g} a second are answered."))
                continue
            try:
                message = parsed(text)
            except InputError as error:
                await _send(page, _error(str(error)))
                continue
            done = await self._answered(page, functools.partial(self._done, session, message))
            if done is not None:
                session, answer = done
                await _send(page, answer)

    def _done(self, session: Session, message: Message) -> tuple[Session, dict[str, Any]]:
        """What a message asks for: the session after it, and the answer."""
        if message.type == "hello":
            raise InputError("This page is connected already.")
        if message.type == "export":
            return session, _exported(session, message["kind"])
        if message.type == "new":
            session = self._new(message["problem"], message["seed"])
        elif message.type == "act":
            session.act(message["action"])
        elif message.type == "change":
            session.change(message["settings"])
        else:
            session.go(message["step"])
        return session, frame_message(session)

    def _new(self, problem: str, seed: int) -> Session:
        return Session(self.programs, problem, seed)

    async def _answered(self, page: ServerConnection, work: Callable[[], Any]) -> Any:
        """The result of some work in another thread; None after an error, which the page is told."""
        loop = asyncio.get_running_loop()

        def compiling(text: str) -> None:
            message = {"type": "status", "text": text}
            asyncio.run_coroutine_threadsafe(_send(page, message), loop)

        context = contextvars.copy_context()
        context.run(COMPILING.set, compiling)
        try:
            return await loop.run_in_executor(self._workers, context.run, work)
        except InputError as error:
            await _send(page, _error(str(error)))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            await _send(page, _error(f"The server made a mistake ({type(error).__name__}); its terminal tells more."))
        return None


def _exported(session: Session, kind: str) -> dict[str, Any]:
    stem = f"{session.problem.name}-{session.cursor}"
    if kind == "python":
        name, media, data = f"{stem}.py", "text/x-python", script(session).encode()
    elif kind == "gif":
        from nbf.play.animation import animation

        name, media, data = f"{stem}.gif", "image/gif", animation(session)
    else:
        raise InputError(f"An episode is exported as gif or as python; got {kind!r:.40}.")
    return {"type": "file", "name": name, "media": media, "data": base64.b64encode(data).decode("ascii")}


def _error(text: str) -> dict[str, Any]:
    return {"type": "error", "text": text}


async def _send(page: ServerConnection, message: dict[str, Any] | None) -> None:
    if message is not None:
        with contextlib.suppress(ConnectionClosed):
            await page.send(json.dumps(message, allow_nan=False, separators=(",", ":")))
