"""Test files in the pipeline's own schema, written with stdatamodels, and the spectrum they hold."""

import numpy as np
import stdatamodels.jwst.datamodels as dm

NRS1 = np.arange(2.87, 3.684, 0.000668)
NRS2 = np.arange(3.788, 5.27, 0.000668)


def smooth(wavelength):
    """A made-up spectrum [Jy] with structure on several scales, positive and negative."""
    return 1e-3 * (1 + 0.5 * np.sin(9 * wavelength) + 0.7 * np.sin(40 * wavelength))


def table(model, wavelength, **columns):
    rows = np.zeros(np.shape(wavelength), dtype=model().get_dtype("spec_table"))
    rows["WAVELENGTH"] = wavelength
    rows["FLUX"] = smooth(wavelength)
    name = "FLUX_ERROR" if "FLUX_ERROR" in rows.dtype.names else "ERROR"
    rows[name] = 2e-5
    for column, values in columns.items():
        rows[column] = values
    return rows


def with_units(spec, wavelength="um", flux="Jy"):
    for name in spec.spec_table.columns.names:
        if name == "WAVELENGTH":
            spec.spec_table.columns[name].unit = wavelength
        elif name in {"FLUX", "FLUX_ERROR", "ERROR"}:
            spec.spec_table.columns[name].unit = flux
    return spec


def save_x1d(path, *tables, detector="NRS1", slits=None, units=("um", "Jy"), target="2MASS J04151954-0935066"):
    """An x1d product: one EXTRACT1D extension per table, as calwebb_spec2 writes fixed-slit data."""
    product = dm.MultiSpecModel()
    product.meta.telescope = "JWST"
    product.meta.instrument.name = "NIRSPEC"
    product.meta.instrument.detector = detector
    product.meta.instrument.grating = "G395H"
    product.meta.target.catalog_name = target
    for k, rows in enumerate(tables):
        spec = dm.SpecModel(spec_table=rows)
        if units is not None:
            with_units(spec, *units)
        spec.name = "S200A1" if slits is None else slits[k]
        product.spec.append(spec)
    product.save(str(path))
    return path


def save_c1d(path, rows):
    """A c1d product: one COMBINE1D extension, as calwebb_spec3 writes."""
    product = dm.CombinedSpecModel(spec_table=rows)
    product.meta.telescope = "JWST"
    with_units(product)
    product.save(str(path))
    return path


def save_x1dints(path, wavelength, integrations, padding=7):
    """An x1dints product: a row per integration, columns 2-D, padded beyond N_ALONGDISP (jwst 1.17 and later)."""
    n = wavelength.size + padding
    base = np.dtype(dm.TSOSpecModel().get_dtype("spec_table"))
    scalars = {"INT_NUM", "N_ALONGDISP", "SEGMENT"} | {f for f in base.names if f.startswith(("MJD", "TDB"))}
    dtype = [(f, base[f]) if f in scalars else (f, base[f], (n,)) for f in base.names]
    rows = np.zeros(len(integrations), dtype=dtype)
    for k, flux in enumerate(integrations):
        for name, values in (("WAVELENGTH", wavelength), ("FLUX", flux), ("FLUX_ERROR", np.full(flux.shape, 1e-4))):
            rows[name][k] = np.nan
            rows[name][k, : wavelength.size] = values
        rows["DQ"][k, wavelength.size :] = 1
        rows["INT_NUM"][k], rows["N_ALONGDISP"][k] = k + 1, wavelength.size
    product = dm.TSOMultiSpecModel()
    product.meta.telescope = "JWST"
    product.spec.append(with_units(dm.TSOSpecModel(spec_table=rows)))
    product.save(str(path))
    return path
