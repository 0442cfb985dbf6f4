"""Reading and writing the packaged tables: NumPy and HDF5, nothing of physics."""
