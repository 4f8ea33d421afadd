"""Errors that a caller can mend. Without JAX, so that plots and the command line can raise them too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "optax": "train",
    "rich": "train",
    "matplotlib": "plot",
    "PIL": "plot",
    "tyro": "cli",
    "diffrax": "flow-matching",
    "cuthbertlib": "classical",
    "gymnax": "gymnax",
    "pyspiel": "openspiel",
    "pomdp_py": "pomdp-py",
    "ray": "ray",
    "gymnasium": "gymnasium",
    "mujoco": "mujoco",
    "websockets": "play",
    "tensorboardX": "tensorboard",
}
"""The extra of the distribution that installs each optional package."""
COMMAND_LINE = ("train", "plot", "cli")
"""The extras that `cli` includes."""


class InputError(ValueError):
    """An argument cannot be used; the message says what was wrong, what was expected, and what to do."""


class HostError(InputError):
    """A simulator that is not JAX failed, or gave something else than it should."""

    latest: HostError | None = None
    """The one that was raised last, which JAX tells as a text of its own."""


def told_by_host(error: Exception) -> Exception:
    """Find the error of a simulator behind the one that JAX makes of it.

    Args:
        error: Of a compiled program.

    Returns:
        The simulator's, with its own traceback; else the error itself.
    """
    found, HostError.latest = HostError.latest, None
    return found if found is not None and str(found) in str(error) else error


@contextmanager
def host_errors() -> Iterator[None]:
    """Show the error of a simulator as it is, not as JAX tells it. Also a decorator.

    Yields:
        Nothing; compiled programs are called inside the `with` block.
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        found = told_by_host(error)
        if found is error:
            raise
        raise found from None


class MissingExtraError(InputError, ImportError):
    """A part of the library was used whose extra is not installed."""


class WorkerError(InputError):
    """A call that a worker was to do failed: its function raised, or the worker died or took too long.

    The message names the call, and has the traceback of the worker if there is one.
    """

    def __init__(self, message: str, number: int | None = None):
        """Keep the message and the call.

        Args:
            message: What happened.
            number: The call, an index of `calls`; None if the error is not of one call.
        """
        super().__init__(message)
        self.number = number


def missing_extra(error: ModuleNotFoundError, what: str, *, command_line: bool = False) -> str | None:
    """Name the extra that installs a missing package, in one sentence.

    Args:
        error: The failed import.
        what: What needs the package: the subject of the sentence.
        command_line: Name the extra `cli` for each package that it includes.

    Returns:
        The sentence; None if no extra installs the package.
    """
    package = (error.name or "").split(".")[0]
    if package not in EXTRAS:
        return None
    extra = EXTRAS[package]
    if command_line and extra in COMMAND_LINE:
        extra = "cli"
    return f"{what} needs {package}: pip install 'neural-bayesian-filtering[{extra}]'"


def check_likelihood(shape: tuple[int, ...], environment: object) -> None:
    """Raise unless a log-likelihood is one number.

    Args:
        shape: Of what `log_likelihood` gave for one pair of states.
        environment: Whose it is.
    """
    if shape != ():
        raise InputError(
            f"`log_likelihood` of {type(environment).__name__} gave an array of shape {shape} for one pair of states, "
            "where one number is expected, of shape (). Sum over its entries if they are independent, or index it: "
            "`value[0]`. Its arguments are log_likelihood(observation, state, next_state), in this order."
        )


@contextmanager
def optional_imports(what: str, *, command_line: bool = False) -> Iterator[None]:
    """Turn a failed import of an optional package into a `MissingExtraError`.

    Args:
        what: What needs the package.
        command_line: Name the extra `cli` for each package that it includes.

    Yields:
        Nothing; the imports go inside the `with` block.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        sentence = missing_extra(error, what, command_line=command_line)
        if sentence is None:
            raise
        raise MissingExtraError(sentence) from error
