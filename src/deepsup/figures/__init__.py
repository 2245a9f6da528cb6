"""Records -> pictures and pages; never needs torch."""

from deepsup.figures.image import draw_image
from deepsup.figures.methods import draw_methods
from deepsup.figures.record import draw_record
from deepsup.figures.report import write_report

__all__ = ["draw_image", "draw_methods", "draw_record", "write_report"]
