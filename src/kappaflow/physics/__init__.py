"""Pure JAX: parameters to a spectrum. Opens no file, prints nothing."""
