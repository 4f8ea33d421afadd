"""What a worker does: it loads a function, and calls it. The same for processes and for Ray."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

READY, LOADED, DONE, RAISED = "ready", "loaded", "done", "raised"
"""What a worker may say: it has started; it has the function; a result, pickled; an error, in words."""
Message = tuple[str, Any]
"""One of these words, and what goes with it."""


def told(error: BaseException) -> str:
    """Say an error on one line, and its traceback below.

    Args:
        error: The error.

    Returns:
        The text.
    """
    head = "".join(traceback.format_exception_only(error)).strip()
    trace = "".join(traceback.format_exception(error)).strip()
    return f"{head}\n\n{trace}"


class Hands:
    """The function that a worker has loaded, and how it is called."""

    def __init__(self) -> None:
        self.function: Callable[..., Any] | None = None

    def load(self, function: bytes) -> Message:
        """Load a function.

        Args:
            function: The function, pickled.

        Returns:
            `LOADED`, or `RAISED` with the error in words.
        """
        try:
            self.function = pickle.loads(function)
        except BaseException as error:
            return RAISED, told(error)
        return LOADED, None

    def call(self, arguments: bytes) -> Message:
        """Call the loaded function.

        Args:
            arguments: A tuple, pickled.

        Returns:
            `DONE` with the pickled result, or `RAISED` with the error in words.
        """
        assert self.function is not None
        try:
            return DONE, pickle.dumps(self.function(*pickle.loads(arguments)), pickle.HIGHEST_PROTOCOL)
        except BaseException as error:
            return RAISED, told(error)


def serve(connection: Connection) -> None:
    """Do what is asked for through a pipe, until the other end is closed. The main function of a worker process.

    Args:
        connection: The pipe to the driver.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the driver ends its workers
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    hands = Hands()
    asked = {"load": hands.load, "call": hands.call}
    try:
        connection.send((READY, None))
        while True:
            word, payload = connection.recv()
            connection.send(asked[word](payload))
    except (EOFError, OSError, KeyboardInterrupt):  # the driver has closed the pipe, or is gone, or wants no more
        return


def _interrupt(*_: object) -> None:
    """End what is being done as Ctrl-C would: it may save its work."""
    raise KeyboardInterrupt


def _end_with_the_driver() -> None:
    """End this process when the driver is gone, also in the middle of a call."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
