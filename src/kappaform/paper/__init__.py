"""Table and figures of the paper: settings → parts on disk → CSV → figure.

Pătrașcu, Rusu and Irofti, *Learning Explicitly Conditioned Sparsifying Transforms*,
arXiv:2403.03168.
"""
