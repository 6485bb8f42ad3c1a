"""The table and the figures of the paper: settings → parts on disk → csv → picture.

Pătrașcu, Rusu and Irofti, *Learning Explicitly Conditioned Sparsifying Transforms*,
arXiv:2403.03168.
"""
