"""Transforms as files: arrays and a readable header in one npz, never pickle.

The entry "header" is JSON: what the file is, the method and its parameters, and what is needed to
use the transform. The others are arrays: "transform", "records" (errors per iteration), for a
conditioned transform "left", "spectrum" and "right", with which learning can be resumed, and where
more batches may follow "gram" and "cross", the sums of those before.
"""

from kappaform.persistence.transforms import load, save

__all__ = ["load", "save"]
