"""Metrics and predictions of runs with a score per pixel -> lines and tables for the terminal."""

from typing import Any

from deepsup.cli.app import table


def dense_line(metrics: dict[str, Any]) -> str:
    """Return the metrics of an output; its error is what its mean IoU lacks to 100 %."""
    edges = metrics.get("boundary_f")
    more = f", boundary F (ODS) {edges['f']:.2f} % at threshold {edges['threshold']:g}" if edges else ""
    return (
        f"error = 100 % - mean IoU; of the output: mean IoU {metrics['miou']:.2f} %, Dice {metrics['dice']:.2f} %, "
        f"wrong pixels {metrics['pixel_error']:.2f} %{more}"
    )


def class_table(metrics: dict[str, Any]) -> str:
    """Return the IoU of every class, of each companion and of the output."""
    rows = [
        [name, *("-" if (iou := each["iou_per_class"][name]) is None else f"{iou:.1f}" for each in metrics.values())]
        for name in metrics["output"]["iou_per_class"]
    ]
    return table(["class, IoU %", *metrics], rows)


def shares_line(classes: dict[str, float]) -> str:
    """Return the classes of a mask, the largest first, with their shares."""
    largest = sorted(classes.items(), key=lambda each: -each[1])
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in largest)
