"""Lines and their profiles: HITRAN records, Voigt sums, statistical lines."""
