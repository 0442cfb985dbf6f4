"""Packaged tables become arrays at the layers, and those a forward model: NumPy in, NumPy out."""

from kappaflow.model.forward import ForwardModel

__all__ = ["ForwardModel"]
