"""Networks on held-out spectra: draws, scores, verdicts."""
