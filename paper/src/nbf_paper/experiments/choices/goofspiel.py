"""Goofspiel as an experiment: its options, jobs and page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import CARDS, LUMPED
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Goofspiel(Experiment):
    """What the opponent has bid in a card game, by policies of self-play, made first if they are not there."""

    name = "goofspiel"
    quick = Amount(steps=50, episodes=10, few=True)

    cards: Annotated[tuple[int, ...], arg(help_behavior_hint="(default: the paper's 4 5 6 7)")] = ()
    """Numbers of cards."""
    arm: tuple[str, ...] = ("faithful",)
    """faithful (the paper's), paper (the same at a constant learning rate, with noise that is not conditioned on θ, and
    with the default filter's update beside the paper's), autoregressive (a softmax for each bid, legal ones only),
    autoregressive-context (the same, told the public history), recurrent (the paper's baseline), lumped (no model: the
    exact filter on the missing card and the set of bids)."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.goofspiel import POOL_GAMES, GoofspielJob, training_of
        from nbf_paper.experiments.goofspiel_evaluation import GoofspielEvaluation
        from nbf_paper.experiments.goofspiel_lumped import LumpedJob
        from nbf_paper.experiments.selfplay import SelfPlayConfig

        evaluation, checkpoints, games = GoofspielEvaluation(), SelfPlayConfig().checkpoints, POOL_GAMES
        evaluation = replace(evaluation, episodes=amount.episodes_or(evaluation.episodes, 4))
        if amount.few:
            evaluation = replace(evaluation, particle_filters=(64, 512))
        training = {arm: training_of(arm) for arm in self.arm if arm != LUMPED}
        if (steps := amount.checked_steps()) is not None:  # a short training needs no large pool
            training = {arm: replace(usual, steps=steps) for arm, usual in training.items()}
            checkpoints = min(checkpoints, max(2, steps // (20 if steps > 2000 else 200)))
            games = min(games, max(64, steps))
        found: list[Job] = []
        for cards, arm, seed in itertools.product(self.cards or CARDS, self.arm, amount.seeds):
            policies = SelfPlayConfig(cards=cards, checkpoints=checkpoints)
            if arm == LUMPED:
                found.append(LumpedJob(cards, seed, evaluation.episodes, policies))
            else:
                found.append(GoofspielJob(cards, arm, seed, training[arm], evaluation, policies, games))
        return found

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import goofspiel

        return goofspiel.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        trained = Part(cls(), seeds=2, steps=3000), Part(cls(arm=("autoregressive",)), seeds=2, steps=6000)
        return (*trained, Part(cls(arm=(LUMPED,)), seeds=2), Part(cls(cards=(5,), arm=("paper",))))

    @classmethod
    def quick_parts(cls) -> tuple[Part, ...]:
        return (Part(cls(cards=(4,), arm=("faithful", "autoregressive", LUMPED))),)
