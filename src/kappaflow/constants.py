"""Physical constants in cgs: CODATA 2018 (exact since the SI of 2019 unless noted) and IAU 2015 nominal values."""

import math

__all__ = [
    "AMU",
    "ATM",
    "BAR",
    "C",
    "C2",
    "GAS",
    "H",
    "H2_SHARE",
    "GM_JUP",
    "HE_SHARE",
    "K",
    "LN10",
    "LOSCHMIDT",
    "L_SUN",
    "PARSEC",
    "REFERENCE_PC",
    "R_JUP",
    "SIGMA_SB",
    "T_OFFSET",
    "T_REFERENCE",
]

H = 6.62607015e-27  # erg s
C = 2.99792458e10  # cm s-1
K = 1.380649e-16  # erg K-1
AMU = 1.66053906660e-24  # g, CODATA 2018, measured
C2 = H * C / K  # cm K, second radiation constant
GAS = 8.314462618e7  # erg mol-1 K-1, and erg K-1 per gram of molecular weight one
BAR = 1.0e6  # dyn cm-2
ATM = 1.01325  # bar; HITRAN's half-widths are per atmosphere
LOSCHMIDT = 2.6867811e19  # molecules cm-3 in one amagat (273.15 K, 1 atm)
R_JUP = 7.1492e9  # cm, nominal equatorial radius, IAU 2015 Resolution B3
GM_JUP = 1.2668653e23  # cm3 s-2, nominal mass parameter, IAU 2015 Resolution B3
L_SUN = 3.828e33  # erg s-1, nominal, IAU 2015 Resolution B3
SIGMA_SB = 5.670374419e-5  # erg s-1 cm-2 K-4
PARSEC = 3.0856775814913673e18  # cm
LN10 = math.log(10.0)

# Conventions that several stations share.
T_REFERENCE = 296.0  # K, HITRAN's: strengths and half-widths are given there
T_OFFSET = 200.0  # K: the chemistry table is even in ln(T + T_OFFSET), with fewer nodes where little changes
REFERENCE_PC = 10.0  # the distance of the forward model's flux
H2_SHARE, HE_SHARE = 0.85, 0.15  # by number, the solar proportion that line widths are mixed in
