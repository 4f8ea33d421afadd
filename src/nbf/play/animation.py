"""An episode as an animated GIF: the three beliefs side by side, one frame for each step. Needs the extra `plot`.

Beliefs in a table are drawn by percent, with the truth outlined.
"""

from __future__ import annotations

import functools
import io
import math

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

from nbf.errors import InputError
from nbf.play.problems.problem import EXACT
from nbf.play.session import Session
from nbf.play.telling import label, table
from nbf.plot.style import AGENT, BELIEF, FAINT, GOAL, INK, WALL

PANEL, GAP, HEAD, FOOT = 232, 16, 58, 30
"""Pixels: of a picture, between two, above and below them."""
SHARPER = 2
"""Everything is drawn so much larger, then made smaller, so that edges are smooth."""
MILLISECONDS = 500
"""Of a frame; the last one stays four times as long."""


def animation(session: Session) -> bytes:
    """Draw an episode, up to the step that is looked at.

    Args:
        session: Of the episode.

    Returns:
        A GIF file.
    """
    if session.cursor == 0:
        raise InputError("There is no step to draw yet: do one, then export.")
    frames = [_drawn(session, number) for number in range(session.cursor + 1)]
    # One palette for all, so that nothing flickers.
    palette = _palette()
    reduced = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [MILLISECONDS] * (len(frames) - 1) + [4 * MILLISECONDS]
    with io.BytesIO() as buffer:
        reduced[0].save(buffer, "GIF", save_all=True, append_images=reduced[1:], duration=times, loop=0, optimize=True)
        return buffer.getvalue()


def _palette() -> Image.Image:
    """The colours that are drawn: shades of belief and of grey, and the mixtures at the smooth edges of the marks."""
    mixes = [("#ffffff", AGENT), (AGENT, "#6aaed6"), (AGENT, "#0a2f66"), (INK, GOAL), (GOAL, "#ffffff")]
    ramps = [BELIEF(np.linspace(0, 1, 96))[:, :3], np.linspace(0, 1, 40)[:, None] * np.ones(3)]
    ramps += [np.linspace(to_rgb(start), to_rgb(end), 20) for start, end in mixes]
    image = Image.new("P", (1, 1))
    image.putpalette(np.rint(255 * np.concatenate(ramps)).astype(np.uint8).tobytes())
    return image


def _drawn(session: Session, number: int) -> Image.Image:
    """One frame."""
    frame, roles = session.frames[number], list(session.frame.readings)
    width = len(roles) * PANEL + (len(roles) + 1) * GAP
    image = Image.new("RGB", (SHARPER * width, SHARPER * (HEAD + PANEL + FOOT)), "white")
    pen = ImageDraw.Draw(image)
    said = "the start" if number == 0 else session.problem.said(frame.used, frame.action, frame.told, frame.observed)
    _write(pen, width / 2, 15.0, f"step {number}: {said}", 15, INK)
    most, tables = float(np.max(frame.readings[EXACT].view.probs)), session.problem.picture == "table"
    for place, role in enumerate(roles):
        left = GAP + place * (PANEL + GAP)
        count = session.problem.counts(frame.used)[role]
        name = f"{label(session, role)} ({count})" if count else label(session, role)
        _write(pen, left + PANEL / 2, 42.0, name, 13, INK)
        if tables:
            _table(pen, session, number, role, left)
        else:
            probs = np.asarray(frame.readings[role].view.probs).reshape(session.problem.shape)
            _belief(image, pen, session, number, probs / most, (SHARPER * left, SHARPER * HEAD))
        if role != EXACT:
            js = float(frame.readings[role].view.js)
            _write(pen, left + PANEL / 2, HEAD + PANEL + 15.0, f"JS {js:.3f}", 13, INK)
    return image.resize((image.width // SHARPER, image.height // SHARPER), Image.Resampling.LANCZOS)


def _belief(
    image: Image.Image,
    pen: ImageDraw.ImageDraw,
    session: Session,
    number: int,
    shares: np.ndarray,
    corner: tuple[int, int],
) -> None:
    """A picture of a belief with what stands in it."""
    size = SHARPER * PANEL
    colours = (255 * BELIEF(np.sqrt(np.minimum(shares, 1.0)))[..., :3]).astype(np.uint8)
    picture = Image.fromarray(colours).resize((size, size), Image.Resampling.NEAREST)
    image.paste(picture, corner)
    left, top = corner
    rows = session.problem.shape[0]
    unit = size / rows
    frame = session.frames[number]
    marks = session.problem.marks(frame.settings, frame.world, number)
    for row, line in enumerate(marks.get("walls", ())):
        for column, cell in enumerate(line):
            if cell == "#":
                at = left + column * unit, top + row * unit
                pen.rectangle((*at, at[0] + unit, at[1] + unit), fill=WALL)
    radius = size / 32

    def spot(place: list[float], colour: str, *, factor: float = 1.0, outline: str = "white") -> None:
        x, y = left + place[1] * unit, top + place[0] * unit
        around = factor * radius
        pen.ellipse((x - around, y - around, x + around, y + around), fill=colour, outline=outline, width=SHARPER)

    if "goal" in marks:
        _star(pen, left + marks["goal"][1] * unit, top + marks["goal"][0] * unit, 1.3 * radius)
    for place, beacon in enumerate(marks.get("beacons", ())):
        spot(beacon, GOAL if place == marks["active"] else "white", factor=0.8, outline=INK)
    if "boat" in marks:
        spot(marks["boat"], GOAL, outline=INK)
    spot(marks["agent"], AGENT)
    pen.rectangle((left, top, left + size, top + size), outline=FAINT, width=SHARPER)


def _star(pen: ImageDraw.ImageDraw, x: float, y: float, radius: float) -> None:
    corners = []
    for point in range(10):
        far, angle = (radius, 0.45 * radius)[point % 2], math.pi * (point / 5 - 0.5)
        corners.append((x + far * math.cos(angle), y + far * math.sin(angle)))
    pen.polygon(corners, fill=GOAL, outline=INK, width=SHARPER)


def _table(pen: ImageDraw.ImageDraw, session: Session, number: int, role: str, left: int) -> None:
    """A belief by percent: a row for each card, a column for each owner."""
    frame = session.frames[number]
    marks, rows = session.problem.marks(frame.settings, frame.world, number), table(session, number, role)
    width, height = PANEL / (1 + len(marks["owners"])), PANEL / (1 + len(rows))
    for column, owner in enumerate(marks["owners"]):
        _write(pen, left + (column + 1.5) * width, HEAD + height / 2, owner, 10, INK)
    for row, (name, shares) in enumerate(zip(marks["cards"], rows, strict=True)):
        top = HEAD + (row + 1) * height
        _write(pen, left + width / 2, top + height / 2, name, 10, FAINT if marks["played"][row] else INK)
        for column in range(len(marks["owners"])):
            corner = left + (column + 1) * width
            box = tuple(
                round(SHARPER * at) for at in (corner + 0.5, top + 0.5, corner + width - 0.5, top + height - 0.5)
            )
            share, here = (None if shares is None else shares[column]), marks["truth"][row] == column
            fill = None if share is None else tuple(int(255 * part) for part in BELIEF(share)[:3])
            pen.rectangle(box, fill=fill, outline=AGENT if here and share is not None else None, width=2 * SHARPER)
            text = ("●" if here else "") if share is None else f"{100 * share:.0f}" if share else ""
            ink = FAINT if share is None else "white" if share > 0.5 else INK
            _write(pen, corner + width / 2, top + height / 2, text, 10, ink)


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    # That of Pillow has no suits of cards.
    return ImageFont.truetype(findfont("DejaVu Sans"), SHARPER * size)


def _write(pen: ImageDraw.ImageDraw, x: float, y: float, text: str, size: int, colour: str) -> None:
    pen.text((SHARPER * x, SHARPER * y), text, fill=colour, font=_font(size), anchor="mm")
