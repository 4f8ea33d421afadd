"""The pages of the site, for mkdocs: `hooks` in mkdocs.yml names this file.

Pages stand where the code host shows them, and have the same paths on the site, so links between them work on both.
A link to a file of the repository that is no page becomes plain text. Equations between dollars become MathML, which
browsers draw themselves. The API reference is written anew at each build (`site_reference`).
"""

from __future__ import annotations

import html
import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import latex2mathml.converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))  # mkdocs loads a hook by its path

from site_reference import reference_pages  # noqa: E402

HOME, GLOSSARY = "README.md", "docs/glossary.md"
TUTORIALS = ("your-own-environment", "simulators", "diagnostics", "cards")
"""Of docs, in this order; every other page of docs is a how-to page."""
FIRST = {
    "docs": ("when-to-use", "models", "trust", "pictures", "adapters"),
    "docs/mathematics": ("index", "filtering", "embedding", "update", "proposals", "moment-matching", "convergence"),
    "docs/coming-from": ("index", "particles", "cuthbert", "filterpy", "pomdp-py", "openspiel"),
    "paper/docs": ("reproduction", "beyond", "zoo", "cards"),
}
"""The first pages of a folder; the others follow by name."""
PROJECT = (GLOSSARY, "CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "SECURITY.md")
LINK = re.compile(r"(?<!\!)\[([^\]\[]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.DOTALL | re.MULTILINE)
PRIME = r"<mi>&#x02032;</mi>"
PRIMED = re.compile(rf"<msup><mi>(\w|&#x\w+;)</mi>{PRIME}</msup>")
PRIMED_BELOW = re.compile(
    rf"<msubsup><mi>(\w|&#x\w+;)</mi>(<mi>\w</mi>|<mrow>(?:(?!<mrow>).)*?</mrow>){PRIME}</msubsup>"
)
FUNCTION = re.compile(r"(<mi>(?:log|exp|min|max|det)</mi>)(?=<m(?:i|over|sub|sup|subsup)\b)")
EQUATION = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def pages_of(folder: str) -> list[str]:
    """List the pages of a folder, the first ones first.

    Args:
        folder: The folder, from the root of the repository.

    Returns:
        Paths from the root.
    """
    first = FIRST.get(folder, ())
    names = [path.stem for path in (ROOT / folder).glob("*.md")]
    missing = [name for name in first if name not in names]
    if missing:
        raise PluginError(f"docs/site_pages.py names pages of {folder} that are not there: {missing}.")
    ordered = [*first, *sorted(name for name in names if name not in first)]
    return [f"{folder}/{name}.md" for name in ordered]


def navigation() -> list[dict[str, Any]]:
    """What the site's navigation has.

    Returns:
        Sections, as mkdocs takes them; a page without a title has that of its first line.
    """
    tutorials = [f"docs/{name}.md" for name in TUTORIALS]
    how_to = [page for page in pages_of("docs") if page not in (*tutorials, GLOSSARY)]
    return [
        {"Home": HOME},
        {"Tutorials": tutorials},
        {"How to": how_to},
        {"Coming from": pages_of("docs/coming-from")},
        {"Mathematics": pages_of("docs/mathematics")},
        {"Measurements": pages_of("paper/docs")},
        {"Reference": [f"reference/{name}.md" for name in reference_pages()]},
        {"Project": [page for page in PROJECT if (ROOT / page).exists()]},
    ]


def listed(nav: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Go through the pages of a navigation.

    Args:
        nav: As `navigation` gives it.

    Yields:
        The path of each page.
    """
    for section in nav:
        for found in section.values():
            yield from [found] if isinstance(found, str) else found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the navigation, and make the anchors of headings those of the code host.

    Args:
        config: The settings of mkdocs.yml.

    Returns:
        The same, changed.
    """
    config.nav = navigation()
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the repository, their figures, and the API reference.

    Args:
        files: What is in docs/site.
        config: The settings.

    Returns:
        All files of the site.
    """
    generated = {f"reference/{name}.md": text for name, text in reference_pages().items()}
    for page in listed(config.nav or ()):
        if page in generated:
            files.append(File.generated(config, page, content=generated[page]))
        else:
            files.append(File.generated(config, page, abs_src_path=str(ROOT / page)))
    for figure in sorted((ROOT / "docs" / "figures").iterdir()):
        files.append(File.generated(config, figure.relative_to(ROOT).as_posix(), abs_src_path=str(figure)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links to files that are no pages plain text; fold the picture that only the code host draws.

    Args:
        markdown: The text of the page.
        page: The page.
        config: The settings.
        files: All files of the site.

    Returns:
        The new text.
    """
    known = {file.src_uri for file in files}
    pieces, end = [], 0
    for fence in FENCE.finditer(markdown):
        pieces += [without_sources(markdown[end : fence.start()], page.file.src_uri, known), folded(fence[0])]
        end = fence.end()
    return "".join([*pieces, without_sources(markdown[end:], page.file.src_uri, known)])


def without_sources(text: str, page: str, known: set[str]) -> str:
    """Replace links to files of the repository that the site does not have by their text.

    Args:
        text: Markdown without code blocks.
        page: The page that it is on.
        known: The paths of the site.

    Returns:
        The new text. A link to what is not there at all stays, and mkdocs warns of it.
    """

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[2]))
        return link[1] if target not in known and (ROOT / target).exists() else link[0]

    return LINK.sub(replaced, text)


def folded(fence: str) -> str:
    """Hide the source of a Mermaid picture, whose program would have to be fetched, behind a line to open.

    Args:
        fence: A code block.

    Returns:
        The same, or the hidden one.
    """
    if not fence.startswith("```mermaid"):
        return fence
    return f'<details markdown="1"><summary>As text (the code host draws it)</summary>\n\n{fence}\n\n</details>'


def on_page_content(content: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn equations into MathML.

    Args:
        content: The page as HTML.
        page: The page.
        config: The settings.
        files: All files of the site.

    Returns:
        The new HTML.
    """
    return EQUATION.sub(lambda found: equation(found[1], found[2], page.file.src_uri), content)


def equation(tag: str, text: str, page: str) -> str:
    """Convert one equation.

    Args:
        tag: `span` in a line, `div` on lines of its own.
        text: The equation in LaTeX, as arithmatex leaves it.
        page: Where it is, for errors.

    Returns:
        HTML.
    """
    latex = html.unescape(text).strip()[2:-2].strip()
    display = "block" if tag == "div" else "inline"
    try:
        found = latex2mathml.converter.convert(latex, display=display)
    except Exception as error:
        raise PluginError(f"{page}: the equation {latex!r} is not understood: {error!r}.") from error
    if "\\" in html.unescape(found) or "<mi>&</mi>" in found:
        raise PluginError(f"{page}: the equation {latex!r} has a command that is not understood: {found}")
    return f'<{tag} class="equation">{set_well(found)}</{tag}>'


def set_well(mathml: str) -> str:
    """Set primes on the line, where every font has them, and a space after the name of a function.

    Args:
        mathml: Of one equation.

    Returns:
        The new MathML.
    """
    mathml = PRIMED.sub(lambda found: f"<mi>{italic(found[1])}′</mi>", mathml)
    mathml = PRIMED_BELOW.sub(lambda found: f"<msub><mi>{italic(found[1])}′</mi>{found[2]}</msub>", mathml)
    return FUNCTION.sub(r'\1<mspace width="0.17em" />', mathml)


def italic(letter: str) -> str:
    """Find the italic of a letter, which a browser sets by itself only where the letter stands alone.

    Args:
        letter: A letter, or its reference in HTML.

    Returns:
        The mathematical italic letter.
    """
    letter = html.unescape(letter)
    for first, last, start in (("a", "z", 0x1D44E), ("A", "Z", 0x1D434), ("α", "ω", 0x1D6FC)):
        if first <= letter <= last:
            return "ℎ" if letter == "h" else chr(start + ord(letter) - ord(first))
    return letter
