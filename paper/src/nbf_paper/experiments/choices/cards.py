"""Hand inference in a card game as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nbf.errors import InputError
from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import OPPONENTS, WHOLE_DECK
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class CardsPlay(Experiment):
    """OpenSpiel's ISMCTS with different beliefs about hidden hands, on duplicate deals (needs the extra openspiel)."""

    name = "cards-play"
    quick = Amount(episodes=2, few=True)

    simulations: int = 300
    """Of each search with rollouts at random."""
    policy_simulations: int = 200
    """Of each search with rollouts by the policies, less what a belief costs."""
    rollouts: tuple[str, ...] = ()
    """random, policies: how leaves are played out. Both by default, with --quick random alone."""
    times: bool = True
    """Also time the decisions of some of the games, last of all: that needs an idle machine."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.belief_play import ROLLOUTS, CardPlayJob, CardPlayTimesJob
        from nbf_paper.experiments.trick_policies import TrickPoolConfig

        policies = TrickPoolConfig(runs=2, checkpoints=2, timesteps=64) if amount.few else TrickPoolConfig()
        kinds = self.rollouts or (ROLLOUTS[:1] if amount.few else ROLLOUTS)
        games = amount.episodes_or(CardPlayJob.games)

        counts = {ROLLOUTS[0]: self.simulations, ROLLOUTS[1]: self.policy_simulations}

        def job(kind: str, seed: int) -> CardPlayJob:
            if kind not in counts:
                raise InputError(f"Rollouts are one of {', '.join(ROLLOUTS)}; got {kind!r}.")
            return CardPlayJob(seed, games, 5 if amount.few else counts[kind], kind, policies)

        def times(of: CardPlayJob) -> Job:
            few = min(of.games, CardPlayTimesJob.games)
            return CardPlayTimesJob(of.seed, few, of.simulations, of.rollouts, of.policies)

        played = [job(kind, seed) for kind in kinds for seed in amount.seeds]
        return [*played, *map(times, played)] if self.times else played

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import cards

        return cards.play_page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls()),)


@dataclass(frozen=True, kw_only=True)
class Cards(Experiment):
    """Who holds what in a trick-taking game: the error of card marginals by calls of the opponents' policies."""

    name = "cards"
    quick = Amount(episodes=2, few=True)

    games: tuple[str, ...] = ()
    """self-play, scripted, wide, search: the small game against such opponents; 52-cards: the whole deck. All by
    default, with --quick scripted and 52-cards, without the baselines that predict likelihoods and without
    forecasts."""
    learned: bool = False
    """The rows of what is trained, a decoder and a card-location network, in the games of self-play, scripted and wide;
    without it, all others."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.cards import CardJob
        from nbf_paper.experiments.cards_forecasts import LargeForecastJob
        from nbf_paper.experiments.cards_interpolated import InterpolatedCardJob
        from nbf_paper.experiments.cards_large import POLICIES, LargeCardJob
        from nbf_paper.experiments.cards_learned import LearnedCardJob

        if self.learned:
            wanted, count = self.games or OPPONENTS, amount.episodes_or(LearnedCardJob.games)
            if WHOLE_DECK in wanted:
                raise InputError(f"--learned is for {', '.join(OPPONENTS)}; leave {WHOLE_DECK} out of --games.")
            return [LearnedCardJob(kind, seed, count, few=amount.few) for kind in wanted for seed in amount.seeds]
        kinds = self.games or (("scripted", WHOLE_DECK) if amount.few else (*OPPONENTS, WHOLE_DECK))
        count = amount.episodes_or(CardJob.games)

        def pair(kind: str, seed: int) -> tuple[Job, Job]:
            if kind != WHOLE_DECK:
                job = CardJob(kind, seed, count, few=amount.few)
                return job, InterpolatedCardJob(job)
            policies = replace(POLICIES, runs=2, checkpoints=2, timesteps=64) if amount.few else POLICIES
            return (
                LargeCardJob(seed, count, policies, amount.few),
                LargeForecastJob(seed, count, policies, amount.few),
            )

        return [job for kind in kinds for seed in amount.seeds for job in pair(kind, seed)[: 1 if amount.few else 2]]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import cards

        return cards.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        every = (*OPPONENTS, WHOLE_DECK)
        return (Part(cls(games=every), seeds=2), Part(cls(games=OPPONENTS, learned=True), seeds=2))
