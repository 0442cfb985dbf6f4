"""The five quantiles that tell a posterior, in every file and table of a retrieval."""

import numpy as np

__all__ = ["KEYS", "LEVELS", "quantiles"]

LEVELS = (0.05, 0.16, 0.5, 0.84, 0.95)
KEYS = tuple(f"q{round(100 * level):02d}" for level in LEVELS)


def quantiles(draws: np.ndarray) -> np.ndarray:
    """Quantiles (5, ...) of draws (n, ...) by Weibull's rule: linear interpolation reads tails too narrow.

    Examples
    --------
    >>> dict(zip(KEYS, quantiles(np.arange(1, 100)).tolist()))
    {'q05': 5.0, 'q16': 16.0, 'q50': 50.0, 'q84': 84.0, 'q95': 95.0}
    """
    return np.quantile(draws, LEVELS, axis=0, method="weibull")
