"""What the paper states: its numbers as it prints them, with the table or section they stand in.

Heraty (2026), "Amortized Opacity Marginalization Improves C/O Interval Calibration for Brown-Dwarf Retrievals".
A row is the words of one line in the order of the columns; "-" where the paper gives no number.
"""

from dataclasses import dataclass

__all__ = ["PUBLISHED", "Statement", "amplitudes", "published"]


@dataclass(frozen=True)
class Statement:
    """Numbers of one place of the paper: row -> its words, one per column."""

    place: str
    columns: tuple[str, ...]
    rows: dict[str, str]

    def value(self, row: str, column: str) -> float | None:
        """Return one number, or None where the paper has none."""
        if row not in self.rows or column not in self.columns:
            return None
        word = self.rows[row].split()[self.columns.index(column)]
        return None if word == "-" else float(word)


PUBLISHED: dict[str, Statement] = {
    "coverage": Statement(
        "Table tab:coverage, n = 2,048",
        ("0.50", "0.68", "0.90", "0.95", "overall", "width"),
        {
            "control": "0.195 0.284 0.433 0.504 0.747 0.055",
            "control ensemble": "0.342 0.448 0.614 0.680 0.845 0.081",
            "marginalized": "0.442 0.599 0.824 0.884 0.831 0.142",
            "marginalized ensemble": "0.513 0.695 0.894 0.934 0.902 0.168",
        },
    ),
    "clean": Statement(
        "Section 3(a), n = 512",
        ("0.90",),
        {"control": "0.62", "control ensemble": "0.932"},
    ),
    "quintiles": Statement(
        "Appendix, regime breakdowns: range over quintiles of T4 and SNR",
        ("lowest", "highest"),
        {
            "control": "0.384 0.468",
            "recalibrated control": "0.667 0.749",
            "marginalized ensemble": "0.854 0.915",
        },
    ),
    "scaling": Statement("Section 3(a), 800 and 3,000 shards, n = 512", ("small", "large"), {"control": "0.57 0.47"}),
    "ensemble": Statement("Section 3(b), n = 512", ("1", "2", "3"), {"marginalized": "0.844 0.842 0.893"}),
    "sbc": Statement(
        "Figure fig:sbc and section 3(b), n = 2,048",
        ("chi2", "rank mean", "pooled chi2", "KS failed", "TARP", "TARP low", "TARP high"),
        {
            "control": "6315 0.673 - - 0.0348 - -",
            "marginalized": "328 0.416 - - 0.0218 - -",
            "marginalized ensemble": "146 0.427 116.2 6 0.0049 0.0025 0.0144",
        },
    ),
    "recalibration": Statement(
        "Section 3(c), n = 2,048",
        ("0.90", "overall", "width"),
        {
            "control": "0.433 0.747 0.055",
            "recalibrated control": "0.705 0.869 -",
            "marginalized": "0.824 0.831 0.142",
            "recalibrated marginalized": "0.881 0.894 -",
            "control ensemble": "0.614 0.845 0.081",
            "recalibrated control ensemble": "0.830 - 0.20",
            "marginalized ensemble": "0.894 0.902 0.168",
            "recalibrated marginalized ensemble": "0.879 - -",
        },
    ),
    "recalibrated pair": Statement(
        "Appendix, recalibration map: marginalized - control, ensembles, both recalibrated",
        ("difference", "low", "high"),
        {"coverage": "0.058 0.041 0.076", "width": "-0.048 -0.064 -0.024"},
    ),
    "amplitude": Statement(
        "Appendix, amplitude sweep, n = 450 per cell",
        ("0.43", "1", "1.43", "2.14"),
        {
            "control": "0.55 0.46 0.40 0.34",
            "marginalized": "0.90 0.86 0.79 0.70",
            "marginalized ensemble": "0.94 0.92 0.86 0.75",
        },
    ),
    "heldout": Statement(
        "Section 3(e) and appendix, n = 1,024 per set",
        ("0.90", "overall"),
        {"withheld list": "0.821 0.833", "lists of training": "0.790 0.832"},
    ),
    "ablation, training": Statement(
        "Table tab:ablation, upper block, n = 2,048",
        ("raw", "recalibrated"),
        {"discrete": "0.454 0.746", "smooth": "0.793 0.873", "both": "0.825 0.877"},
    ),
    "ablation, testing": Statement(
        "Table tab:ablation, lower block, n = 438 and 434",
        ("control", "marginalized ensemble"),
        {"discrete": "0.614 0.963", "smooth": "0.472 0.910"},
    ),
    "masks": Statement(
        "Table tab:stress, upper block, n = 1,024, 105 real masks; un-augmented ensemble and control: section 3(f)",
        ("none", "median fill", "re-noise", "full path", "overall, full path", "width", "width, full path"),
        {
            "control": "0.457 0.329 - - - - -",
            "marginalized": "0.834 0.405 0.823 0.418 0.675 0.138 0.220",
            "marginalized ensemble": "0.901 0.479 0.897 0.480 - - -",
            "mask-augmented": "0.888 0.866 0.872 0.843 0.852 0.184 0.280",
            "mask-augmented ensemble": "0.933 0.916 0.932 0.905 0.891 0.209 0.311",
        },
    ),
    "broadening": Statement(
        "Table tab:stress, lower block, n = 434 and 444",
        ("reference", "broadened", "difference"),
        {
            "C_O": "0.910 0.901 -0.009",
            "overall": "0.906 0.858 -0.048",
            "T3": "0.885 0.613 -0.272",
            "T2": "0.929 0.795 -0.134",
            "T4": "0.906 0.822 -0.084",
            "T1": "0.915 0.833 -0.081",
            "log_g": "0.926 0.854 -0.073",
            "M_H": "0.931 0.899 -0.032",
        },
    ),
    "informative": Statement(
        "Appendix, calibration is not information gain: median 90 % width over the prior's own",
        ("width",),
        {
            "R": "0.97",
            "sigma_cal": "0.99",
            "log_kzz": "0.99",
            "sigma_c": "1.00",
            "f_sed": "0.93",
            "C_O": "0.16",
            "T3": "0.05",
            "v_r": "0.13",
            "M_H": "0.46",
        },
    ),
    "informative means": Statement(
        "Appendix, calibration is not information gain, n = 453",
        ("overall", "informative"),
        {"control": "0.755 0.691", "marginalized ensemble": "0.902 0.904"},
    ),
    "priors": Statement(
        "Table tab:opamp",
        ("const", "1", "2", "3", "4"),
        {
            "CH4": "0.226 0.244 0.184 0.114 0.057",
            "H2O": "0.083 0.107 0.072 0.043 0.016",
            "CO": "0.154 0.176 0.128 0.078 0.036",
            "NH3": "0.154 0.176 0.128 0.078 0.036",
            "H2S": "0.154 0.176 0.128 0.078 0.036",
            "CO2": "0.339 0.366 0.276 0.171 0.085",
        },
    ),
    "real": Statement(
        "Table tab:real, 2MASS J04151954-0935066",
        ("median", "68 low", "68 high", "90 low", "90 high"),
        {
            "control": "0.642 0.574 0.710 0.538 0.765",
            "recalibrated control": "0.642 0.546 0.918 0.467 0.918",
            "marginalized": "0.669 0.529 0.830 0.418 0.940",
            "recalibrated marginalized": "0.669 0.448 0.786 0.339 0.915",
            "marginalized ensemble": "0.746 0.566 0.970 0.460 1.115",
            "mask-augmented": "0.493 0.374 0.708 0.284 0.940",
            "mask-augmented ensemble": "0.587 0.420 0.828 0.329 0.995",
        },
    ),
    "sample": Statement(
        "Section 3(g) and appendix, 105 spectra of 13 objects: width over prior of the 58 with SNR of at least 10; "
        "seeds: median |difference of C/O| of pairs; spectra beyond the predictive envelope, of those scored",
        ("width", "seeds", "beyond", "scored"),
        {
            "control": "0.21 - - -",
            "marginalized": "0.33 0.19 58 94",
            "mask-augmented": "0.41 - - -",
            "mask-augmented ensemble": "0.48 - - -",
        },
    ),
    "literature": Statement("Hood et al. (2024), as the paper quotes it", ("C_O", "error"), {"T8": "0.53 0.01"}),
    "latency": Statement(
        "Appendix, inference latency: 400 draws, one core of an i5-13600K",
        ("seconds",),
        {"one network": "1.3", "three networks": "3.9"},
    ),
}


def published(statement: str, row: str, column: str) -> float | None:
    """Return one number of the paper, or None where it has none.

    Examples
    --------
    >>> published("coverage", "control", "0.90")
    0.433
    """
    return PUBLISHED[statement].value(row, column)


def amplitudes(species: str) -> list[float | None]:
    """Return the paper's five standard deviations of a species: the constant and the four modes."""
    return [published("priors", species, column) for column in PUBLISHED["priors"].columns]
