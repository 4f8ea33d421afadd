"""Jobs whose players are policies of self-play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from nbf_paper.experiments.demands import Size
from nbf_paper.experiments.job import Job
from nbf_paper.experiments.policy_pool import PolicyPool, make_pool, pool_path, read_pool
from nbf_paper.experiments.ppo import PoolConfig


class PoolJob(Job):
    """A job that needs a pool of policies: one that is there must be made as the job says, else it is made."""

    policies: PoolConfig
    """How they are made."""

    @property
    def needs_policies(self) -> bool:
        """Whether it needs them at all."""
        return True

    def sizes(self) -> list[Size]:
        return [*super().sizes(), *([self.policies.size] if self.needs_policies else [])]

    def check(self, runs: Path) -> None:
        super().check(runs)
        path = pool_path(runs, self.policies)
        if self.needs_policies and path.exists():
            read_pool(path, self.policies)

    def pool(self, runs: Path) -> PolicyPool[Any]:
        """The policies, made if they are not there yet."""
        return make_pool(self.policies, pool_path(runs, self.policies))

    def held_out(self, runs: Path) -> Any:
        """The policies of a run of self-play that no tuning has seen, with a leading axis on every leaf."""
        return jax.tree.map(jnp.asarray, self.pool(runs).split().run)
