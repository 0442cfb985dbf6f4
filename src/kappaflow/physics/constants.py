"""Physical constants in cgs: CODATA 2018 (exact since the SI of 2019 unless noted) and IAU 2015 nominal values."""

__all__ = ["AMU", "BAR", "C", "C2", "H", "K", "PARSEC", "R_JUP"]

H = 6.62607015e-27  # erg s
C = 2.99792458e10  # cm s-1
K = 1.380649e-16  # erg K-1
AMU = 1.66053906660e-24  # g, CODATA 2018, measured
C2 = H * C / K  # cm K, second radiation constant
BAR = 1.0e6  # dyn cm-2
R_JUP = 7.1492e9  # cm, nominal equatorial radius, IAU 2015 Resolution B3
PARSEC = 3.0856775814913673e18  # cm
