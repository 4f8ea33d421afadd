"""Who does many calls of one function: this process, other processes of this machine, or a Ray cluster.

| name | who does the calls |
|---|---|
| `InProcess` | this process, one after the other |
| `Processes` | worker processes of this machine |
| `RayWorkers` | workers of a Ray cluster; needs the extra `ray` |
| `executor` | one of them, by a name as on a command line |

All keep to one contract, `Executor`. A function that is deterministic given its arguments gives the same results on
each of them, in the same order, bit for bit.
"""

from __future__ import annotations

from nbf.executors.contract import Executor
from nbf.executors.in_process import InProcess
from nbf.executors.named import executor
from nbf.executors.processes import Processes
from nbf.executors.ray_workers import RayWorkers

__all__ = ["Executor", "InProcess", "Processes", "RayWorkers", "executor"]
