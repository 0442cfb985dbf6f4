"""A spectrum and networks become a posterior and a trust card."""
