"""The page of other packages' speed: tables of one step of a particle filter, and a figure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nbf.plot.style import FAINT, INK
from nbf_paper.records import RecordError, Summary, read_records, summary
from nbf_paper.report.plots import SPARE
from nbf_paper.report.tables import MISSING, Page, layout

OURS = "nbf"
NAMES = {
    OURS: "**nbf**", "cuthbert": "cuthbert", "blackjax": "blackjax", "particles": "particles", "filterpy": "FilterPy",
    "stonesoup": "Stone Soup", "plain": "NumPy by hand",
}  # fmt: skip
"""The names of the packages, in the order of the rows."""
JAX = ("cuthbert", "blackjax")
"""Peers that are compiled as ours is."""
CAPTIONS = {
    "peers": "Microseconds of one step of one particle filter, by number of particles: the tenth percentile of many "
    "calls, and the median.",
    "peers-batches": "Milliseconds of one step of many filters at once: the tenth percentile of many calls, and the "
    "median.",
    "peers-ratios": "Ours, compiled, as a multiple of the fastest other package; below 1 is faster. In brackets, "
    "`step` from a Python loop.",
    "peers.png": "Time of one step against the number of particles, for one filter and for 256 at once.",
}

Way = tuple[str, str]
"""A package, and how it was called."""
Found = Mapping[tuple[Way, int, int, str], Summary]
"""By way, filters, particles and metric."""


def page(folder: Path) -> Page:
    """The tables and the figure of the record in a folder."""
    entries = summary(read_records(folder))
    found = {((e.filter, e.arm), _filters(e), e.particles, e.metric): e for e in entries}
    if not found:
        raise RecordError(f"There are no times in {folder}: make them with `make bench-peers`.")
    sizes = sorted({(filters, particles) for _, filters, particles, _ in found})
    alone = [size for size in sizes if size[0] == 1]
    many = [size for size in sizes if size[0] > 1]
    tables = {}
    if alone:
        tables["peers"] = _times(found, alone, lambda size: f"n = {_spaced(size[1])}", 1.0)
    if many:
        tables["peers-batches"] = _times(found, many, lambda size: f"{size[0]} x {_spaced(size[1])}", 1e-3)
    tables["peers-ratios"] = _ratios(found, sizes)
    return Page(
        tables, {"peers.png": functools.partial(figure, found)}, title="Speed of other packages", captions=CAPTIONS
    )


def _filters(entry: Summary) -> int:
    """How many filters a call stepped, from the config of a record: `filters=256`."""
    return int(entry.config.removeprefix("filters="))


def _ways(found: Found) -> list[Way]:
    """In the order of the rows."""
    order = list(NAMES)
    ways = {way for way, _, _, _ in found}
    return sorted(ways, key=lambda way: (order.index(way[0]) if way[0] in order else len(order), way))


def _times(found: Found, sizes: list[tuple[int, int]], head: Callable[[tuple[int, int]], str], scale: float) -> str:
    lines = [["Package", "called", *map(head, sizes)]]
    for way in _ways(found):
        cells = [_cell(found, way, size, scale) for size in sizes]
        lines.append([NAMES.get(way[0], way[0]), way[1], *cells])
    return layout(lines)


def _cell(found: Found, way: Way, size: tuple[int, int], scale: float) -> str:
    entries = [found.get((way, *size, metric)) for metric in ("us_p10", "us_median")]
    return " / ".join(MISSING if e is None else _number(scale * e.value) for e in entries) if all(entries) else MISSING


def _number(value: float) -> str:
    """A number with three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _spaced(count: int) -> str:
    return f"{count:,}".replace(",", " ")


def _ratios(found: Found, sizes: Iterable[tuple[int, int]]) -> str:
    """Our time relative to the fastest peer in JAX, and to the fastest of all."""
    lines = [["Filters x particles", "fastest in JAX", "ratio", "fastest of all", "ratio"]]
    for size in sizes:
        cells = [f"{size[0]} x {_spaced(size[1])}"]
        for baselines in (JAX, tuple(name for name in NAMES if name != OURS)):
            cells += _against(found, size, baselines)
        lines.append(cells)
    return layout(lines)


def _against(found: Found, size: tuple[int, int], baselines: tuple[str, ...]) -> list[str]:
    times = {way: found[way, *size, "us_p10"].value for way in _ways(found) if (way, *size, "us_p10") in found}
    theirs = {way: value for way, value in times.items() if way[0] in baselines}
    compiled = [value for way, value in times.items() if way[0] == OURS and "step" not in way[1]]
    stepped = [value for way, value in times.items() if way[0] == OURS and "step" in way[1]]
    if not theirs or not compiled:
        return [MISSING, MISSING]
    best = min(theirs, key=lambda way: theirs[way])
    beside = f" ({stepped[0] / theirs[best]:.2f})" if stepped else ""
    return [NAMES[best[0]], f"{compiled[0] / theirs[best]:.2f}{beside}"]


def figure(found: Found) -> Figure:
    """Time against the number of particles, of one filter and of the smallest batch."""
    batches = sorted({filters for _, filters, _, _ in found})[:2]
    drawing = Figure(figsize=(4.6 * len(batches), 3.8), layout="constrained")
    axes = list(drawing.subplots(1, len(batches), squeeze=False)[0])
    for axis, filters in zip(axes, batches, strict=True):
        _lines(axis, found, filters)
    axes[0].set_ylabel("µs a step, tenth percentile", color=INK)
    axes[0].legend(frameon=False, fontsize=8, labelcolor=INK)
    return drawing


def _lines(axis: Axes, found: Found, filters: int) -> None:
    colours = dict(zip(NAMES, ("#0072B2", "#D55E00", *SPARE), strict=False))
    for way in _ways(found):
        points = sorted((n, e.value) for (w, f, n, m), e in found.items() if (w, f, m) == (way, filters, "us_p10"))
        if not points:
            continue
        ours = way[0] == OURS
        name = f"nbf, {way[1]}".replace("`", "") if ours else NAMES.get(way[0], way[0])
        axis.plot(
            *zip(*points, strict=True), label=name, color=colours.get(way[0], FAINT), marker="o", markersize=3.5,
            linewidth=2.2 if ours else 1.3, linestyle="--" if ours and "step" in way[1] else "-",
        )  # fmt: skip
    axis.set(xscale="log", yscale="log")
    axis.set_title("one filter" if filters == 1 else f"{filters} filters at once", fontsize=10.5, color=INK)
    axis.set_xlabel("particles", color=INK)
    axis.grid(color=FAINT, linewidth=0.4, alpha=0.5)
