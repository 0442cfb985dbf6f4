"""A telescope file becomes a spectrum on the model's pixels."""

from kappaflow.observe.read import read_spectrum
from kappaflow.observe.resampling import mask_outliers, resample
from kappaflow.observe.spectrum import Spectrum, covered_fraction, pixel_edges

__all__ = ["Spectrum", "covered_fraction", "mask_outliers", "pixel_edges", "read_spectrum", "resample"]
