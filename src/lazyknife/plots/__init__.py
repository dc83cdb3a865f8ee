"""Plots for papers and pages: each takes data and ``ax=None``, draws, and returns the axes."""

from .comparison import Panel, plot_comparison, plot_methods
from .curves import Curve, plot_curves, plot_guarantees
from .intervals import plot_band, plot_coverage_by_bin, plot_intervals
from .look import style
from .output import figure_svg, save_figure

__all__ = [
    "Curve",
    "Panel",
    "figure_svg",
    "plot_band",
    "plot_comparison",
    "plot_coverage_by_bin",
    "plot_curves",
    "plot_guarantees",
    "plot_intervals",
    "plot_methods",
    "save_figure",
    "style",
]
