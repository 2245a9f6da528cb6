"""Records -> pictures; never needs torch."""

from deepsup.figures.methods import draw_methods

__all__ = ["draw_methods"]
