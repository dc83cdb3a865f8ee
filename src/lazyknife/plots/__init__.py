"""Plots for papers and pages: each takes data and ``ax=None``, draws, and returns the axes."""

from .comparison import Panel, plot_comparison, plot_methods
from .figures import figure_svg, save_figure, style
from .intervals import (
    plot_band,
    plot_coverage_by_bin,
    plot_influence,
    plot_intervals,
    plot_learning_curve,
)

__all__ = [
    "Panel",
    "figure_svg",
    "plot_band",
    "plot_comparison",
    "plot_coverage_by_bin",
    "plot_influence",
    "plot_intervals",
    "plot_learning_curve",
    "plot_methods",
    "save_figure",
    "style",
]
