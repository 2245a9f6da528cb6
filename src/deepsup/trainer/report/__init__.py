"""Figures and HTML pages from the records of runs. Never needs torch."""

from deepsup.trainer.report._exit_page import draw_exits
from deepsup.trainer.report._harm_figure import draw_harm
from deepsup.trainer.report._image_figure import draw_image
from deepsup.trainer.report._method_figures import draw_methods
from deepsup.trainer.report._probe_page import write_probe_page
from deepsup.trainer.report._record_figure import draw_record
from deepsup.trainer.report._theory_figure import draw_theory
from deepsup.trainer.report._write import write_report

__all__ = [
    "draw_exits",
    "draw_harm",
    "draw_image",
    "draw_methods",
    "draw_record",
    "draw_theory",
    "write_probe_page",
    "write_report",
]
