"""The curves of a training: what is measured while it runs, handed to whoever wants to see it.

`nbf.fit(family, log=nbf.TensorBoard("logs/first"))` writes them for TensorBoard; any function of the step and the
numbers does as well, such as `lambda step, values: wandb.log(values, step=step)`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from nbf.errors import InputError, optional_imports

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

TrainingLog = Callable[[int, Mapping[str, float]], None]
"""Called with the gradient steps done and what was measured: `loss`, in nats per sample, the mean since the last call;
`seconds` of training; and, where it was evaluated, `held_out`, the loss on beliefs that are not trained on."""


class TensorBoard:
    """Writes the curves of a training to a folder that `tensorboard --logdir` shows. A `TrainingLog`.

    A training that is resumed goes on with its curves: what they show beyond the step of its file is dropped. `close`
    it, or use it in a `with` block; what was written half a minute ago is on disk in any case.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        """Check that the folder can be one. Nothing is written before the first number.

        Args:
            folder: Of this training alone.
        """
        with optional_imports("nbf.TensorBoard"):
            import tensorboardX  # noqa: F401
        self.folder = os.fspath(folder)
        if os.path.exists(self.folder) and not os.path.isdir(self.folder):
            raise InputError(f"{self.folder} is a file, and curves need a folder: name another one, or remove it.")
        self._writer: SummaryWriter | None = None

    def __call__(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve.

        Args:
            step: Gradient steps done.
            values: Name and value of each curve.
        """
        from tensorboardX import SummaryWriter

        # The suffix, since two sessions that begin in the same second would have one file.
        writer = self._writer or SummaryWriter(self.folder, purge_step=step, flush_secs=30, filename_suffix=f".{step}")
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        self._writer = writer

    def close(self) -> None:
        """Write what is not on disk yet. A number that comes later opens the curves again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()
