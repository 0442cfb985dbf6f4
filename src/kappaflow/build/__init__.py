"""From public line data to the packaged tables."""
