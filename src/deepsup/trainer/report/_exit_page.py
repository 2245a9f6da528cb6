"""Early exits of a run: the curve of error against cost, and which images leave where."""

from pathlib import Path

from deepsup.errors import RunError
from deepsup.io import folder_below
from deepsup.trainer.report._html import PageTable, Picture, Section
from deepsup.trainer.report._insight_figures import picture_uri
from deepsup.trainer.report._labels import NONE
from deepsup.trainer.report._read import RunRecord, read_run
from deepsup.trainer.report._style import (
    MOST_PICTURES,
    MOST_POINTS,
    PAPER,
    PLAIN,
    SUPERVISED,
    WIDTH,
    Drawing,
    number,
    series,
    tidy,
)

ABOUT = (
    "An image leaves at the first companion whose confidence is above its threshold; the others go on. Thresholds were "
    "chosen on images that are not among those counted here. Below are the first images that leave at each exit."
)
CURVE = (
    "Error against the cost of an image, relative to the plain net (the cross): filled circles by measured time, "
    "hollow squares by multiply-adds. On the images that the thresholds were chosen on."
)


def exit_section(run: RunRecord) -> Section:
    """Return the section about early exits; empty for a run without them."""
    if not run.exits:
        return Section("Early exits")
    tables = [exit_table(run), speed_table(run)]
    section = Section("Early exits", ABOUT, tables=tables)
    section.show(draw_exit_curve(run), CURVE)
    for each, image in zip(run.exits.get("shown", []), run.exit_images.get("images", ())[:MOST_PICTURES], strict=False):
        right = each["said"] == each["label"]
        words = f"{each['said']}, {'right' if right else 'it is ' + each['label']}"
        lines = [
            "goes to the end" if each["exit"] == "output" else f"leaves at {each['exit']}",
            words,
            f"confidence {number(each['confidence']):.3f}",
        ]
        alt = f"Test image {each['index']}, {each['label']}, leaves at {each['exit']}"
        section.pictures.append(Picture(picture_uri(image), alt, lines))
    return section


def exit_table(run: RunRecord) -> PageTable:
    """Return a row per exit: threshold, how many images leave there, and their error."""
    rows = []
    for name, each in run.exits.get("exits", {}).items():
        threshold = run.exits["thresholds"].get(name)
        sure = NONE if threshold is None else f"{threshold:.3f}"
        rows.append([name, sure, f"{number(each['share']):.1f} %", f"{number(each['error']):.2f} %"])
    return PageTable(["exit", "leaves above", "test images", "their error"], rows)


def speed_table(run: RunRecord) -> PageTable:
    """Return the errors, and the speed relative to the plain net by batch size."""
    rows = [
        ["test error with exits", f"{number(run.exits.get('error')):.2f} %"],
        ["test error of the plain net", f"{number(run.exits.get('plain_error')):.2f} %"],
    ]
    for size, speed in run.exits.get("speedup", {}).items():
        rows.append([f"speed at batch size {size}", f"{number(speed):.2f} times that of the plain net"])
    return PageTable(["early exits", ""], rows)


def draw_exit_curve(run: RunRecord) -> Drawing | None:
    """Draw error against measured time and against multiply-adds, both relative to the plain net."""
    curve = run.exits.get("curve", [])[:MOST_POINTS]
    if not curve:
        return None
    error, plain = series(curve, "error"), number(run.exits["validation"]["plain_error"])
    times, work = series(curve, "cost"), series(curve, "multiply_adds")
    ends = f"from {error[0]:.2f} % at {times[0]:.2f} of the time to {error[-1]:.2f} % at {times[-1]:.2f}"
    drawing = Drawing("exits", f"Error with early exits against cost: {ends}; plain net {plain:.2f} %.", (WIDTH, 3.2))
    with drawing as axes:
        batch = curve[0].get("batch")
        axes.plot(times, error, color=SUPERVISED, marker="o", label=f"measured time, batches of {batch}")
        axes.plot(work, error, color=PLAIN, marker="s", linestyle="--", markerfacecolor=PAPER, label="multiply-adds")
        axes.plot([1], [plain], color="#D55E00", marker="x", markersize=8, linestyle="none", label="plain net",
                  clip_on=False)  # fmt: skip
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        tidy(axes, "cost per image, relative to the plain net", "validation error, %")
        drawing.figure.legend(loc="outside upper center", fontsize=9, ncols=2)
    return drawing


def draw_exits(folder: Path) -> Path:
    """Draw the curve of a run into its ``plots/``; return the PNG's path."""
    drawing = draw_exit_curve(read_run(folder))
    if drawing is None:
        raise RunError(f"{folder} has no early exits; expected what deepsup exits wrote; run it first")
    return drawing.save(folder_below(folder, "plots"))
