"""`nbf-paper reproduce`: the experiments of the paper, one or all, run and recorded."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

from rich.console import Console
from tyro.conf import Suppress, arg, subcommand

from nbf.cli.command import FAILED, Command, Flag, is_mistake, say, sentence
from nbf.errors import InputError
from nbf.executors import Executor, executor
from nbf.files.atomic import check_replaceable, check_writable
from nbf_paper.experiments import choices, demands
from nbf_paper.experiments.choices.experiment import at_least
from nbf_paper.experiments.elsewhere import received, work
from nbf_paper.experiments.job import Job
from nbf_paper.protocol.stages import PROTOCOL

if TYPE_CHECKING:
    Chosen = choices.Experiment | choices.All
else:
    _SUBCOMMANDS = {**choices.EXPERIMENTS, "all": choices.All}
    Chosen = Union[tuple(Annotated[kind, subcommand(name)] for name, kind in _SUBCOMMANDS.items())]  # noqa: UP007


@dataclass(frozen=True, kw_only=True)
class Reproduce(Command):
    """Train, evaluate and record an experiment of the paper; what is recorded already is not run again."""

    experiment: Chosen
    """Which experiment."""
    seeds: Annotated[
        int | None, arg(help_behavior_hint="(default: 1; with all, as many as the documentation shows)")
    ] = None
    """How many training seeds."""
    first_seed: int = 0
    """The first of them."""
    steps: Annotated[int | None, arg(help_behavior_hint="(default: as in the paper; few with --quick)")] = None
    """Gradient steps."""
    episodes: Annotated[int | None, arg(help_behavior_hint="(default: mostly 500; few with --quick)")] = None
    """Episodes, or beliefs, of an evaluation."""
    quick: Flag = False
    """Try the whole path in a few minutes, in folders of its own."""
    results: Annotated[Path | None, arg(help_behavior_hint="(default: results; results-quick with --quick)")] = None
    """Folder of the records."""
    runs: Annotated[Path | None, arg(help_behavior_hint="(default: runs; runs-quick with --quick)")] = None
    """Folder of the trainings."""
    on: Annotated[str | None, arg(help_behavior_hint="(default: here)", metavar="WHERE")] = None
    """Who does the jobs: here (one after the other), processes or processes:N (of this machine), ray (the cluster of
    RAY_ADDRESS, else of this machine) or ray://host:port. Records are written here alone. The machines of a cluster
    need the same code, and must share the folder of the trainings under the same path, or each trains anew what it
    needs. What measures times runs here in any case."""
    command: Suppress[str] = ""
    """The command as it was typed, for the record."""

    @property
    def folders(self) -> tuple[Path, Path]:
        """Of the records and of the trainings."""
        ending = "-quick" if self.quick else ""
        return self.results or Path(f"results{ending}"), self.runs or Path(f"runs{ending}")

    def answer(self) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            workers = None if self.on in (None, "here") else stack.enter_context(executor(self.on))
            if self.quick:
                stack.enter_context(_compiling_quickly())
            if isinstance(self.experiment, choices.All):
                return self._everything(self.experiment, workers)
            return self._one(self.experiment, workers)

    def _one(self, experiment: choices.Experiment, workers: Executor | None) -> dict[str, Any]:
        """Run one experiment; whatever can be refused is refused before any work."""
        results, runs = self.folders
        folder = results / experiment.name
        todo = self._jobs(choices.Part(experiment))
        check_writable(folder)
        check_writable(runs)
        recorded = [job.is_recorded(folder) for job in todo]
        left = [job for job, finished in zip(todo, recorded, strict=True) if not finished]
        for job in left:
            job.check(runs)
        _announce(left)
        elsewhere = {} if workers is None else self._elsewhere(workers, left, folder)
        done = []
        for number, job in enumerate(todo, start=1):
            if job.key in elsewhere:
                done.append(_or_raised(elsewhere[job.key]))
                continue
            state = "recorded already" if recorded[number - 1] else "to do"
            say(f"[{number}/{len(todo)}] {job.title}: {state}")
            done.append(self._run(job, folder))
        return {"results": str(folder), "runs": done}

    def _everything(self, options: choices.All, workers: Executor | None) -> dict[str, Any]:
        """Run all that is planned; a job that fails does not stop the others and is reported at the end."""
        results, runs = self.folders
        page = options.html or Path("nbf-report-quick.html" if self.quick else "nbf-report.html")
        failed: list[dict[str, str]] = []
        todo = self._planned(options, failed)
        check_replaceable(page)
        for folder in (results, runs, page.parent):
            check_writable(folder)
        _announce([job for _, job in todo], " (less what is recorded already)")
        done, begin, elsewhere = [], time.monotonic(), {}
        for number, (name, job) in enumerate(todo, start=1):
            if workers is not None and (number == 1 or todo[number - 2][0] != name):
                jobs = [other for experiment, other in todo if experiment == name]
                elsewhere = self._elsewhere(workers, jobs, results / name)
            elapsed = timedelta(seconds=round(time.monotonic() - begin))
            say(f"[{number}/{len(todo)}] {elapsed}  {name}: {job.title}")
            with _collected(failed, f"{name}: {job.title}"):
                if job.key in elsewhere:
                    done.append({"experiment": name, **_or_raised(elsewhere[job.key])})
                    continue
                if not job.is_recorded(results / name):
                    job.check(runs)
                done.append({"experiment": name, **self._run(job, results / name)})
            if number == len(todo) or todo[number][0] != name:
                _forget_compiled()
        with _collected(failed, "the page"):
            from nbf_paper.report.pages import write_html

            write_html(results, page)
        return {"results": str(results), "runs": done, "failed": failed, "page": str(page)}

    def _planned(self, options: choices.All, failed: list[dict[str, str]]) -> list[tuple[str, Job]]:
        """The jobs of all experiments, with the experiment's name; a wrong option is an error at once."""
        if options.protocol == "paper":
            if self.quick:
                raise InputError(
                    "--quick tries a little of everything, and --protocol paper is all that the paper did. Leave out "
                    "one of them."
                )
            return [(stage.experiment.name, job) for stage in PROTOCOL for job in self._jobs(stage.part)]
        found = []
        for name, kind in choices.EXPERIMENTS.items():
            with _collected(failed, name, mistakes=False):
                for part in kind.quick_parts() if self.quick else kind.parts():
                    found += [(name, job) for job in self._jobs(part)]
        return found

    def _jobs(self, part: choices.Part) -> list[Job]:
        """The jobs of a part, as many and as large as the options say."""
        from nbf.prng import seed

        count = part.seeds if self.seeds is None else at_least(1, seeds=self.seeds)
        demands.require(demands.Size("--seeds", count, demands.seeds))
        usual = part.experiment.quick if self.quick else choices.Amount(steps=part.steps, episodes=part.episodes)
        steps = usual.steps if self.steps is None else self.steps
        episodes = usual.episodes if self.episodes is None else self.episodes
        seeds = range(self.first_seed, self.first_seed + count)
        for number in seeds:
            seed(number)
        jobs = list(part.experiment.jobs(choices.Amount(seeds, steps, episodes, usual.few)))
        for job in jobs:
            job.check_size()
        return jobs

    def _run(self, job: Job, folder: Path) -> dict[str, Any]:
        from nbf.plot.terminal import Meter

        begin = time.monotonic()
        with Meter(job.evaluated) as meter:
            new = job.run(folder, self.folders[1], command=self.command, bar=meter)
        return {"run": job.title, "key": job.key, "new": new, "seconds": round(time.monotonic() - begin, 1)}

    def _elsewhere(
        self, workers: Executor, jobs: Sequence[Job], folder: Path
    ) -> dict[str, dict[str, Any] | InputError]:
        """Run what is not recorded yet on workers, and record it here; a job that fails does not stop the others.

        Returns, by the key of the job, what `_run` does, or the error. Jobs that measure times are left out.
        """
        runs, found, todo = self.folders[1], {}, []
        for job in {job.key: job for job in jobs if not job.timed and not job.is_recorded(folder)}.values():
            try:
                job.check(runs)
                todo.append(job)
            except InputError as error:
                found[job.key] = error
        calls = [(job, folder.resolve(), runs.resolve(), self.quick) for job in todo]
        with contextlib.closing(workers.outcomes(work, calls)) as outcomes:
            for count, (number, outcome) in enumerate(outcomes, start=1):
                job = todo[number]
                try:
                    measured = received(outcome)
                    job.record(folder, measured, command=self.command)
                    seconds = measured.seconds
                    found[job.key] = {"run": job.title, "key": job.key, "new": True, "seconds": seconds}
                    told = f"recorded, {seconds:.0f} s of work"
                except InputError as error:
                    found[job.key], told = error, "failed"
                say(f"[{count}/{len(todo)}] {job.title}: {told}")
        return found

    def show(self, answer: dict[str, Any], console: Console) -> None:
        if isinstance(self.experiment, choices.All):
            new = [run["seconds"] for run in answer["runs"] if run["new"]]
            print(
                f"{len(answer['runs'])} runs recorded, {len(new)} of them now, in {timedelta(seconds=round(sum(new)))}"
            )
            print(f"records in {answer['results']}; all figures and tables in {answer['page']}")
            for failure in answer["failed"]:
                say(f"nbf-paper: {failure['what']} failed: {failure['error']}")
            return
        folder = Path(answer["results"])
        for table in self.experiment.page(folder).tables.values():
            print(f"\n{table}")
        print(f"\nrecords in {folder}; draw them with: nbf-paper report --results {folder.parent}")

    def code(self, answer: dict[str, Any]) -> int:
        return FAILED if answer.get("failed") else 0


def _or_raised(found: dict[str, Any] | InputError) -> dict[str, Any]:
    """What a worker's job gave, or its error, raised."""
    if isinstance(found, InputError):
        raise found
    return found


def _announce(jobs: Sequence[Job], but: str = "") -> None:
    """Say it if jobs take long."""
    told = demands.announcement(sum((job.check_size().seconds for job in jobs), 0.0))
    if told:
        say(f"nbf-paper: {told}{but}")


@contextlib.contextmanager
def _collected(failed: list[dict[str, str]], what: str, *, mistakes: bool = True) -> Iterator[None]:
    """Keep an error and continue; a fault of the library is also printed with its traceback.

    With `mistakes=False`, a caller's mistake is raised.
    """
    try:
        yield
    except Exception as error:
        if not is_mistake(error):
            traceback.print_exc()
        elif not mistakes:
            raise
        told = sentence(error) or type(error).__name__
        say(f"nbf-paper: {what} failed: {told}")
        failed.append({"what": what, "error": told})


@contextlib.contextmanager
def _compiling_quickly() -> Iterator[None]:
    """Compile with few optimizations, since a short run spends most of its time in the compiler."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


def _forget_compiled() -> None:
    """Free what was compiled for one experiment: the programs of all experiments together need too much memory."""
    import jax

    jax.clear_caches()
