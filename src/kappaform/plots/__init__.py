"""Figures of transforms, of their errors, and of denoised images.

Every function returns a new matplotlib ``Figure`` that belongs to no window and no global state:
``figure.savefig("spectrum.png")`` writes it, a notebook shows it.
"""

from kappaform.plots.curves import plot_convergence, plot_path, plot_spectrum
from kappaform.plots.pictures import plot_atoms, plot_denoising

__all__ = ["plot_atoms", "plot_convergence", "plot_denoising", "plot_path", "plot_spectrum"]
