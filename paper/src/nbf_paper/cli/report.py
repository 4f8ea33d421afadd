"""`nbf-paper report`: figures and tables, drawn from the records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from nbf.cli.command import Command, Flag

if TYPE_CHECKING:
    from nbf.plot.episode import Episode


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Draw all figures and tables from the records: into the documentation, and into one HTML page."""

    results: Path = Path("results")
    """Folder of the records."""
    docs: Path = Path("docs")
    """Folder of the documentation: figures go to DOCS/figures, tables into its Markdown files."""
    paper: Path = Path("paper/docs")
    """Another folder of Markdown files with tables."""
    readme: Path = Path("README.md")
    """Another Markdown file with tables."""
    html: Path = Path("nbf-report.html")
    """The page: one file with every figure and table, for any browser, offline."""
    beliefs: Flag = True
    """Leave the picture and animation of beliefs as they are; they take half a minute."""

    def answer(self) -> dict[str, Any]:
        from nbf.plot.terminal import Meter
        from nbf_paper.report.pages import write_pages

        pages = (*sorted(self.docs.glob("*.md")), *sorted(self.paper.glob("*.md")), self.readme)
        documents = [path for path in pages if path.exists()]
        with Meter() as meter:

            def episode() -> Episode:
                from nbf.cli.demonstration import DemoConfig, example_episode

                return example_episode(DemoConfig(), meter)

            meter.describe("drawing figures from the records")
            beliefs = episode if self.beliefs else None
            written = write_pages(self.results, self.docs, documents, self.html, beliefs)
        return {"written": [str(path) for path in written]}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        print("\n".join(answer["written"]))
