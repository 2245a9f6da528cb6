"""Figures and HTML pages from the records of runs. Never needs torch."""

from deepsup.trainer.report.exit_page import draw_exits
from deepsup.trainer.report.harm_figure import draw_harm
from deepsup.trainer.report.image_figure import draw_image
from deepsup.trainer.report.method_figures import draw_methods
from deepsup.trainer.report.record_figure import draw_record
from deepsup.trainer.report.write import write_report

__all__ = ["draw_exits", "draw_harm", "draw_image", "draw_methods", "draw_record", "write_report"]
