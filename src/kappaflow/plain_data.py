"""Plain data: arrays become lists, NumPy numbers Python's, and what is undefined (NaN) becomes None."""

from typing import Any

import numpy as np

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Return `value` as what JSON can hold.

    Examples
    --------
    >>> plain({"a": np.array([1.0, np.nan]), "b": np.float32(0.5), "c": (np.True_, None)})
    {'a': [1.0, None], 'b': 0.5, 'c': [True, None]}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
