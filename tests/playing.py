"""What tests of the playground share: filters that cost nothing, a server in a thread, a page that is no browser."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np
from websockets.sync.client import ClientConnection, connect

from nbf.contracts import FilterInfo
from nbf.play.access import KEY_BYTES
from nbf.play.problems.problem import ROLES, Problem
from nbf.play.programs import Bets, Programs, View
from nbf.play.server import Playground

KEY = bytes(range(KEY_BYTES))


class FakeFilter:
    """In a filter's place: its state is a list of the observations, its belief leans on where the last one says."""

    def __init__(self, problem: Problem, role: str, count: int):
        self.problem, self.role, self.count, self.filter = problem, role, count, None

    def init(self, key: Any, environment: Any) -> tuple[float, ...]:
        return ()

    def update(
        self, key: Any, state: Any, observation: Any, environment: Any, policy: Any
    ) -> tuple[Any, FilterInfo, float]:
        told = float(np.asarray(observation))
        info = FilterInfo(jnp.float32(self.count / 2), jnp.float32(-1.0), jnp.int32(1), jnp.bool_(False))
        return (*state, told), info, 10.0 * (1 + len(state))

    def watch(self, key: Any, before: Any, bets: Bets, observation: Any, environment: Any, policy: Any) -> Bets:
        return bets._replace(steps=bets.steps + 1)

    def look(self, state: Any, environment: Any, truth: Any) -> View:
        cells = int(np.prod(self.problem.shape))
        probs = np.full(cells, 1.0 / cells, np.float32)
        probs[(len(state) + ROLES.index(self.role)) % cells] += 1.0
        js = np.asarray(0.1 * ROLES.index(self.role), np.float32)
        return View(probs / probs.sum(), js, np.zeros((0, 3), np.float32))


class FakePrograms(Programs):
    """Programs that are compiled at once."""

    def of(self, problem: Problem, role: str, count: int) -> Any:
        return FakeFilter(problem, role, count)

    def ready(self, problem: Problem, role: str, count: int) -> bool:
        return True


class Running:
    """A server in a thread of its own."""

    def __init__(self, programs: Programs, key: bytes, port: int):
        self.said: list[str] = []
        self.playground = Playground(key, say=self.said.append, programs=programs)
        self._started, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(port)), daemon=True)
        self._thread.start()
        assert self._started.wait(30)

    async def _serve(self, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        server = await self.playground.start(port)
        self._started.set()
        await self._end.wait()
        await self.playground.stop(server)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def port(self) -> int:
        return self.playground.port


@contextmanager
def running(programs: Programs | None = None, *, key: bytes = KEY, port: int = 0) -> Iterator[Running]:
    """A server, which ends with the block."""
    server = Running(FakePrograms() if programs is None else programs, key, port)
    try:
        yield server
    finally:
        server.stop()


class Page:
    """A page that is no browser: messages alone."""

    def __init__(self, socket: ClientConnection):
        self.socket, self.granted = socket, ""

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def read(self) -> dict[str, Any]:
        """The next message that is no news of the compiler."""
        while (message := json.loads(self.socket.recv(60)))["type"] == "status":
            pass
        return message

    def ask(self, **message: Any) -> dict[str, Any]:
        self.send(**message)
        return self.read()


@contextmanager
def opened(server: Running, origin: str | None = None, **more: Any) -> Iterator[Page]:
    """A websocket of the server, before its first message."""
    where = f"127.0.0.1:{server.port}"
    with connect(f"ws://{where}/socket", origin=origin or f"http://{where}", **more) as socket:  # pyright: ignore
        yield Page(socket)


@contextmanager
def joined(server: Running, shown: str | None = None, recipe: Any = None) -> Iterator[tuple[Page, dict[str, Any]]]:
    """A page that was admitted, and its first frame."""
    with opened(server) as page:
        hello = page.ask(type="hello", **{"pass": shown or server.playground.access.token}, recipe=recipe)
        assert hello["type"] == "hello", hello
        page.granted = hello["pass"]
        yield page, page.read()
