"""A retrieval becomes files and one page."""
