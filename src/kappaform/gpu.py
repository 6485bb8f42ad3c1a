"""Which GPUs the fused kernels run on."""

from __future__ import annotations

import logging
from functools import cache

_logger = logging.getLogger("kappaform")
_OLDEST_TRITON = (3, 2)
_OLDEST_GPU = (8, 0)  # compute capability


@cache
def fused_kernels_run_on(device: int) -> bool:
    """Whether fused kernels can be compiled for a GPU; if not, logs the reason once."""
    import torch

    reason = ""
    if torch.version.cuda is None or torch.cuda.get_device_capability(device) < _OLDEST_GPU:
        reason = "need an NVIDIA GPU of compute capability 8.0 or later"
    else:
        try:
            import triton

            if tuple(map(int, triton.__version__.split(".")[:2])) < _OLDEST_TRITON:
                reason = f"need Triton 3.2 or later, not {triton.__version__}"
        except ImportError:
            reason = "need the package triton"
    if reason:
        _logger.info("fused kernels %s: operations of torch are used, which are slower", reason)
    return not reason
