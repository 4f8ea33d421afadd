"""Laws of the report: a table and a figure show the records' numbers, and no report needs jax."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image, ImageSequence
from tolerances import EXACT, SEED

from nbf.errors import InputError
from nbf.plot.episode import Episode, belief_figure, write_animation
from nbf.plot.style import write_figure
from nbf_paper.records import ALL, Record, RecordError
from nbf_paper.report.labels import label, row_order
from nbf_paper.report.plots import PANELS, divergence_figure
from nbf_paper.report.tables import config_order, insert_table, markdown_table

STEPS = 20
ROWS = [("pf", "", 512), ("pf", "", 32), ("nbf", "faithful", 16), ("approx", "faithful", 0), ("exact", "", 0)]


def recorded(config: str, seeds: int = 1) -> list[Record]:
    """Every row of a configuration by step, with numbers that tell where they come from."""
    found = []
    for number, (filter, arm, particles) in enumerate(ROWS[:-1], start=1):
        for seed in range(seeds):
            head = ("gridworld", config, filter, arm, particles, particles, seed)
            found += [Record(*head, t, "js", number / 10 + t / 1000 + seed / 100, 0.02, 500) for t in range(STEPS + 1)]
            found.append(Record(*head, ALL, "js", number / 10 + seed / 100, 0.004, 500))
    return [*found, Record("gridworld", config, *ROWS[-1], 0, 0, ALL, "js", 0.0, 0.0, 500)]


def wandering(steps: int = STEPS, size: int = 8) -> Episode:
    """An agent that walks down the first column and then stays, seen rightly but for step 2."""
    random = np.random.default_rng(SEED)
    path = np.stack([np.minimum(np.arange(steps + 1), size - 1), np.zeros(steps + 1, int)], axis=-1)
    symbols = np.where(np.diff(path[:, 0]) > 0, 1, 4)
    symbols[1] = 3
    walls = np.zeros((size, size), bool)
    walls[2:5, 3:6] = True
    beliefs = {name: random.dirichlet(np.full(size**2, 0.3), steps + 1) for name in ("Exact", "PF (32)", "NBF (16)")}
    beliefs = {name: belief.reshape(-1, size, size) for name, belief in beliefs.items()}
    js = {"PF (32)": random.random(steps + 1), "NBF (16)": random.random(steps + 1)}
    return Episode(walls, np.array([7, 7]), path, symbols, beliefs, js)


def pixels(figure: Figure, path: Path) -> np.ndarray:
    write_figure(figure, path, dpi=60)
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


# --- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (("nbf", "faithful", 16), "NBF (16), paper's flow"),
        (("nbf", "paper", 16), "NBF (16), paper's flow to the letter"),
        (("nbf", "paper-default", 16), "NBF (16), paper's flow to the letter, default update"),
        (("pf", "", 128), "PF (128)"),
        (("branching", "branches chosen", 64), "Fearnhead–Clifford (64), branches chosen"),
        (("approx", "faithful", 0), "Approx Beliefs, paper's flow"),
        (("nbf", "enumerated", 16), "NBF (16), enumerated"),
        (("exact", "", 0), "Exact"),
        (("new", "", 0), "new"),
    ],
)
def test_labels(row: tuple[str, str, int], text: str) -> None:
    assert label(*row) == text


def test_rows_and_configurations_stand_in_the_paper_s_order() -> None:
    rows = [("exact", "", 0), ("approx", "faithful", 0), ("nbf", "faithful", 16), ("nbf", "faithful", 32)]
    rows += [("nbf", "enumerated", 16), ("pf", "", 32), ("pf", "", 64), ("pf", "", 128), ("pf", "", 512), ("zz", "", 1)]
    assert sorted(set(rows), key=row_order) == rows
    configs = [*PANELS["fixed"], *PANELS["random"], "8-2D-random-diffuse"]
    assert sorted(set(configs), key=config_order) == configs


def test_table_text() -> None:
    records = [*recorded("8-2D-random"), *recorded("5-2D-random", seeds=2)]
    records = [record for record in records if (record.config, record.filter) != ("5-2D-random", "approx")]
    assert markdown_table(records) == "\n".join([
        "| Filter                       |     5-2D-random |     8-2D-random |",
        "|------------------------------|----------------:|----------------:|",
        "| Exact                        | 0.000 ± 0.000 † | 0.000 ± 0.000 † |",
        "| Approx Beliefs, paper's flow |               – | 0.400 ± 0.004 † |",
        "| NBF (16), paper's flow       |   0.305 ± 0.005 | 0.300 ± 0.004 † |",
        "| PF (32)                      |   0.205 ± 0.005 | 0.200 ± 0.004 † |",
        "| PF (512)                     |   0.105 ± 0.005 | 0.100 ± 0.004 † |",
        "| *seeds × episodes*           |       1–2 × 500 |         1 × 500 |",
        "",
        "± is one standard error over training seeds and episodes: the larger of √(variance of the seeds' "
        "means / seeds) and",
        "√(sum of the seeds' squared errors over episodes) / seeds. † one training seed, so the error is over its "
        "episodes alone.",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("seeds", "se", "words"),
    [
        (1, 0.1, "± is one standard error over episodes of one training seed, and does not cover other seeds."),
        (2, None, "± is one standard error over training seeds."),
        (1, None, ""),
    ],
)
def test_a_table_says_what_its_errors_are(seeds: int, se: float | None, words: str) -> None:
    records = [dataclasses.replace(record, se=se) for record in recorded("8-2D-random", seeds) if record.particles]
    table, _, legend = markdown_table(records).partition("\n\n")
    assert legend == words
    assert "†" not in table
    assert ("±" in table) == bool(words)


def test_table_of_one_step_with_calls_and_without_errors() -> None:
    records = [dataclasses.replace(record, se=None) for record in recorded("8-2D-random")]
    lines = markdown_table(records, step=7, digits=4, calls=True, configs=["8-2D-random"]).splitlines()
    assert lines[0].split("|")[2].strip() == "Calls"
    assert "| PF (512)                     |   512 |      0.1070 |" in lines


def test_a_table_of_nothing_is_an_error() -> None:
    with pytest.raises(RecordError, match="nothing to tabulate"):
        markdown_table(recorded("8-2D-random"), metric="nll")
    with pytest.raises(RecordError, match="5-2D-fixed"):
        markdown_table(recorded("8-2D-random"), configs=["5-2D-fixed"])


def test_insert_table_replaces_only_what_is_between_its_markers(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    other = "<!-- nbf:table b -->\nstays\n<!-- /nbf:table -->\n"
    file.write_bytes(f"# A\r\n<!-- nbf:table a -->\nold\n<!-- /nbf:table -->\n{other}end ± 1".encode())
    assert insert_table(file, "a", "| x |\n") is True
    wanted = f"# A\r\n<!-- nbf:table a -->\n\n| x |\n\n<!-- /nbf:table -->\n{other}end ± 1".encode()
    assert file.read_bytes() == wanted
    assert insert_table(file, "a", "| x |") is False
    assert [found.name for found in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing", "0 times"),
        ("<!-- nbf:table a -->\n<!-- /nbf:table -->\n" * 2, "2 times"),
        ("<!-- nbf:table a -->\nnever closed", "never closed"),
        ("<!-- nbf:table a -->\n<!-- nbf:table b -->\n<!-- /nbf:table -->", "never closed"),
    ],
)
def test_wrong_markers_are_an_error_and_change_nothing(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "README.md"
    file.write_text(text)
    with pytest.raises(RecordError, match=words):
        insert_table(file, "a", "| x |")
    assert file.read_text() == text
    with pytest.raises(RecordError, match="cannot be read"):
        insert_table(tmp_path / "absent.md", "a", "| x |")


# --- divergence by step --------------------------------------------------------------------------


def test_lines_are_the_records_means_and_bands_their_errors() -> None:
    figure = divergence_figure(recorded("8-2D-random", seeds=2), ["8-2D-random"])
    (axis,) = figure.axes
    assert [line.get_label() for line in axis.lines] == [
        "Approx Beliefs, paper's flow",
        "NBF (16), paper's flow",
        "PF (32)",
        "PF (512)",
    ]
    for line, band, number in zip(axis.lines, axis.collections, (4, 3, 2, 1), strict=True):
        steps = np.arange(STEPS + 1)
        mean = number / 10 + steps / 1000 + 0.005
        error = max(np.std([0, 0.01], ddof=1) / np.sqrt(2), np.sqrt(2 * 0.02**2) / 2)
        np.testing.assert_array_equal(line.get_xdata(), steps)
        np.testing.assert_allclose(np.asarray(line.get_ydata(), float), mean, **EXACT)
        corners = np.asarray(band.get_paths()[0].vertices)[:, 1]
        np.testing.assert_allclose([corners.min(), corners.max()], [mean[0] - error, mean[-1] + error], **EXACT)


def test_one_panel_per_configuration_and_missing_ones_say_so(tmp_path: Path) -> None:
    figure = divergence_figure([*recorded("5-2D-fixed"), *recorded("8-3D-fixed")], PANELS["fixed"])
    assert [axis.get_title() for axis in figure.axes] == list(PANELS["fixed"])
    assert [[text.get_text() for text in axis.texts] for axis in figure.axes] == [
        [], ["not recorded"], ["not recorded"], [],
    ]  # fmt: skip
    (legend,) = figure.legends
    shown = [text.get_text() for text in legend.get_texts() if text.get_text().strip()]
    assert shown == ["Approx Beliefs, paper's flow", "NBF (16), paper's flow", "PF (32)", "PF (512)"]
    assert pixels(figure, tmp_path / "figure.png").std() > 0


def test_a_filter_looks_the_same_in_every_panel_and_differs_from_the_others() -> None:
    records = [*recorded("5-2D-random"), *recorded("8-2D-random")]
    records += [dataclasses.replace(r, arm="enumerated") for r in records if (r.filter, r.config[0]) == ("nbf", "8")]
    first, second = divergence_figure(records).axes
    looks = [{line.get_label(): (line.get_color(), line.get_marker()) for line in a.lines} for a in (first, second)]
    assert looks[0].items() <= looks[1].items()
    assert len(set(looks[1].values())) == len(looks[1]) == 5


def test_many_particle_counts_and_unknown_filters_can_be_drawn(tmp_path: Path) -> None:
    base = [record for record in recorded("k=6") if record.filter == "pf"]
    records = [dataclasses.replace(r, particles=n) for n in (1, 2, 4, 8, 16, 32) for r in base if r.particles == 32]
    records += [dataclasses.replace(r, filter=f"f{n}") for n in range(9) for r in base]
    figure = divergence_figure(records, logarithmic=True)
    assert len(figure.axes[0].lines) == 6 + 2 * 9
    pixels(figure, tmp_path / "figure.png")


@pytest.mark.parametrize("arms", [("faithful",), ("faithful", "enumerated", "kernel", "paper", "paper-default")])
def test_the_legend_is_not_wider_than_the_figure(arms: tuple[str, ...]) -> None:
    records = [record for config in PANELS["fixed"] for record in recorded(config)]
    records += [dataclasses.replace(r, arm=arm) for arm in arms[1:] for r in records if r.arm == "faithful"]
    figure = divergence_figure(records, PANELS["fixed"])
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1
    assert whole.y0 <= box.y0 < box.y1 <= whole.y1


def test_a_figure_of_nothing_is_an_error() -> None:
    with pytest.raises(RecordError, match="nothing to draw"):
        divergence_figure(recorded("8-2D-random"), PANELS["fixed"])


# --- beliefs -------------------------------------------------------------------------------------


def test_heat_maps_hold_the_beliefs_the_agent_and_the_observations(tmp_path: Path) -> None:
    episode, steps = wandering(), [0, 1, 2, 9]
    figure = belief_figure(episode, steps)
    panels = np.array(figure.axes[:12], object).reshape(3, 4)
    for row, name in zip(panels, episode.beliefs, strict=True):
        assert row[0].get_ylabel() == name
        for axis, step in zip(row, steps, strict=True):
            np.testing.assert_array_equal(axis.images[0].get_array(), episode.beliefs[name][step])
            goal, agent = axis.lines
            assert goal.get_xydata().tolist() == [[7, 7]]
            assert agent.get_xydata().tolist() == [episode.path[step][::-1].tolist()]
            assert len(axis.patches) == episode.walls.sum()
            js = f"JS {episode.js[name][step]:.3f}" if name in episode.js else ""
            assert axis.get_xlabel() == js
    assert [axis.get_title() for axis in panels[0]] == ["start", "step 1   ↓", "step 2   →", "step 9   bump"]
    colours = [axis.title.get_color() for axis in panels[0]]
    assert colours[2] != colours[0] == colours[1] == colours[3], "only step 2 was misread"
    scales = {axis.images[0].norm for axis in panels.flat}
    assert len(scales) == 1, "one colour scale for all panels"
    assert pixels(figure, tmp_path / "figure.png").std() > 0


def test_heat_maps_choose_their_steps_and_refuse_others() -> None:
    titles = [axis.get_title() for axis in belief_figure(wandering()).axes[:6]]
    assert [title.split("   ")[0] for title in titles] == ["start", "step 1", "step 3", "step 6", "step 10", "step 20"]
    for steps in ([21], [-1], []):
        with pytest.raises(InputError, match="between 0 and 20"):
            belief_figure(wandering(), steps)


@pytest.mark.parametrize(("steps", "size"), [pytest.param(STEPS, 8, marks=pytest.mark.slow), (2, 8)])
def test_animation_has_one_frame_per_step_and_is_small(tmp_path: Path, steps: int, size: int) -> None:
    file = tmp_path / "new" / "beliefs.gif"
    write_animation(wandering(steps, size), file)
    assert file.stat().st_size < 1_500_000
    with Image.open(file) as image:
        assert (image.format, image.info["loop"]) == ("GIF", 0)
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(image)]
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24) or []}
    assert durations == [700] * steps + [2800]
    assert {(255, 255, 255), (0xD5, 0x5E, 0x00)} <= colours, "white is white and the agent has its colour"


def test_episodes_that_cannot_be_drawn_are_refused() -> None:
    episode = wandering()
    with pytest.raises(InputError, match="Only beliefs in a 2-D grid are drawn; this grid is 3-D"):
        dataclasses.replace(episode, walls=np.zeros((5, 5, 5), bool))
    with pytest.raises(InputError, match=r"path .* must be \(21, 2\)"):
        dataclasses.replace(episode, path=episode.path[1:])
    with pytest.raises(InputError, match="belief of PF"):
        dataclasses.replace(episode, beliefs={"PF": episode.beliefs["Exact"][:, 1:]})
    with pytest.raises(InputError, match="js of PF"):
        dataclasses.replace(episode, js={"PF": np.zeros(3)})
    with pytest.raises(InputError, match="symbols"):
        dataclasses.replace(episode, symbols=episode.symbols + 1)
    with pytest.raises(InputError, match="without beliefs"):
        dataclasses.replace(episode, beliefs={})


def test_an_unwritable_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_figure(belief_figure(wandering(), [0]), tmp_path / "file" / "figure.png")


def test_a_report_never_imports_jax_or_pyplot() -> None:
    program = "import sys, nbf_paper.report.plots, nbf_paper.report.tables; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"jax", "jaxlib", "equinox", "matplotlib.pyplot"} & set(done.stdout.split())
