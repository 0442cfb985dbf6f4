"""The model as a telescope file's own pixels see it.

The networks know pixels that are means over the flux itself, and the line-spread function of a filled slit. A file has
pixels of its own, and means over those are broader: their variance by 0 to 1/4 of a squared pixel, depending on how the
two grids lie. A point source is sharper than a filled slit, by about 0.3 of a squared pixel at 4 um. Neither changes
the pixels, the noise or any parameter: both are in the fixed matrix that leads from the modelling grid to the pixels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kappaflow.instrument import POINT_SOURCE
from kappaflow.observe.resampling import shares, trusted
from kappaflow.observe.spectrum import Spectrum, pixel_edges
from kappaflow.spectra import same_pixels
from kappaflow.storage import digest_arrays

__all__ = ["seen_by"]


def seen_by(model: Any, native: Spectrum, width: float = POINT_SOURCE) -> Any:
    """Return `model` with a line-spread function `width` times as wide, its pixels means over those of `native`.

    None where `native` is on the model's pixels already, as simulated spectra are, and for what is no `ForwardModel`.
    """
    import jax

    from kappaflow.model.arrays import single
    from kappaflow.model.detector_matrix import matrix_of_file
    from kappaflow.model.forward import ForwardModel

    if not isinstance(model, ForwardModel) or same_pixels(native.wavelength, model.wavelength):
        return None
    tables = model.tables
    grid = (np.asarray(tables.lines.nodes, float) @ np.asarray(tables.lines.between, float)).ravel()
    own, source = shares(trusted(native, model.wavelength), model.wavelength), pixel_edges(native.wavelength)
    matrix = single(matrix_of_file(tables.detector, grid, source, own, width))
    seen = tables._replace(detector=tables.detector._replace(matrix=jax.device_put(matrix)))
    meta = {**model.meta, "line_spread": width, "file_pixels": digest_arrays({"matrix": matrix})}
    return replace(model, tables=seen, meta=meta)
