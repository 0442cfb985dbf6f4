"""The reading side: what a batch holds depends on (seed, epoch, spectrum) alone, whoever reads it and how."""

import tracemalloc

import h5py
import numpy as np
import pytest

from kappaflow.errors import UserError
from kappaflow.parameters import INDEX, PARAMETER_SETS
from kappaflow.simulation import Shards, read_shard
from kappaflow.simulation import reader as reader_module
from kappaflow.simulation.directory import shard_path
from kappaflow.spectra import median_snr

FIELDS = ("theta", "flux", "error", "mask", "snr")


@pytest.fixture(scope="module")
def directory(tmp_path_factory, toy_shards):
    return toy_shards(tmp_path_factory.mktemp("set"), 12 * 128, pixels=300)


def equal(a, b):
    return all(np.array_equal(getattr(a, f), getattr(b, f)) for f in FIELDS)


def test_a_shard_is_an_ordinary_hdf5_file_that_describes_itself(directory):
    with h5py.File(shard_path(directory, 5), "r") as file:
        assert {name: file[name].shape for name in file} == {
            "theta": (128, 15),
            "field": (128, 54),
            "amplitude": (128,),
            "broadening": (128, 2),
            "combination": (128,),
            "snr": (128,),
            "flux": (128, 300),
            "wavelength": (300,),
        }
        assert file["flux"].dtype == np.float32
        assert (file.attrs["seed"], file.attrs["index"]) == (0, 5)
        assert set(file["combination"][()]) == {1}  # 5 mod 4
        assert all(word in file.attrs["config"] for word in ("amplitude", "broadening", "CH4=exomol"))
        assert all(name in file.attrs["columns"] for name in PARAMETER_SETS["paper"].columns)
    shard, address = read_shard(shard_path(directory, 5))
    assert np.array_equal(shard.flux, Shards(directory).flux(slice(5 * 128, 6 * 128)))
    assert address["digest"] == Shards(directory).config["digest"]


def test_a_batch_is_the_same_whoever_reads_it_and_when(directory):
    first, second = Shards(directory, masks=True), Shards(directory, masks=True)
    second.train(0, 5, 64)
    second.validation(0, 10)
    assert equal(first.train(3, 2, 64), second.train(3, 2, 64))


@pytest.mark.parametrize("masks", [False, True])
def test_a_spectrum_is_the_same_in_any_batch_and_with_any_number_of_threads(directory, masks, monkeypatch):
    shards = Shards(directory, masks=masks)
    large = shards.train(1, 0, 600)
    monkeypatch.setattr(reader_module, "THREADS", 1)
    small = [shards.train(1, i, 50) for i in range(12)]
    for f in FIELDS:
        assert np.array_equal(getattr(large, f), np.concatenate([getattr(s, f) for s in small])), f


def test_an_epoch_visits_every_training_spectrum_once_in_an_order_over_the_whole_set(directory):
    shards = Shards(directory)
    n = shards.card.n_train
    seen = np.concatenate([shards.train(0, i, 100).index for i in range(-(-n // 100))])
    assert sorted(seen) == sorted(shards.split[0])
    assert len(set(seen[:100] // 128)) == 12  # the first batch already comes from every shard
    again = np.concatenate([shards.train(1, i, 100).index for i in range(-(-n // 100))])
    assert not np.array_equal(seen, again)


def test_noise_masks_and_gain_are_new_in_every_epoch_and_with_every_seed(directory):
    shards, other = Shards(directory, masks=True), Shards(directory, masks=True, seed=1)
    draws = []
    for batch in (shards.train(0, 0, 2000), shards.train(1, 0, 2000), other.train(0, 0, 2000)):
        order = np.argsort(batch.index)
        draws.append((batch.flux[order], batch.mask[order]))
    for (flux, mask), (flux2, mask2) in ((draws[0], draws[1]), (draws[0], draws[2])):
        assert not np.isclose(flux[mask & mask2], flux2[mask & mask2], rtol=1e-6).mean() > 0.01
        assert not np.array_equal(mask, mask2)


def test_validation_never_changes_and_shares_no_spectrum_with_training(directory):
    shards = Shards(directory, masks=True)
    before = shards.validation(0, 1000)
    shards.train(4, 0, 64)
    assert equal(before, shards.validation(0, 1000))
    assert equal(shards.validation(10, 20), shards.validation(10, 15 + 5))
    train, validation = shards.split
    assert not set(train) & set(validation)
    assert len(train) + len(validation) == len(shards)
    assert abs(len(validation) / len(shards) - 0.1) < 0.03


def test_no_spectrum_changes_sides_when_the_set_grows(tmp_path, toy_shards):
    small = Shards(toy_shards(tmp_path, 2 * 128)).split
    large = Shards(toy_shards(tmp_path, 6 * 128)).split
    for side in (0, 1):
        assert np.array_equal(small[side], large[side][large[side] < 256])


def test_evaluation_draws_once_from_its_seed(directory):
    shards = Shards(directory, masks=True)
    first = shards.evaluation(200)
    assert equal(first, Shards(directory, masks=True).evaluation(200, seed=0))
    assert not equal(first, shards.evaluation(200, seed=1))
    assert np.array_equal(first.theta, shards.theta[:200].astype(np.float32))
    assert np.array_equal(first.field, shards.field[:200])
    assert [shards.combinations[i]["CH4"] for i in first.combination[[0, 128]]] == ["base", "exomol"]
    assert len(shards.evaluation()) == len(shards)
    with pytest.raises(UserError, match="1536"):
        shards.evaluation(5000)
    with pytest.raises(UserError, match="the set has"):
        shards.evaluation(200, start=len(shards) - 100)
    assert np.array_equal(shards.evaluation(50, start=100).flux, first.flux[100:150])


def test_the_noise_has_the_size_that_the_error_array_says(directory):
    shards = Shards(directory)
    batch = shards.evaluation()
    clean = shards.flux(slice(None))
    quiet = shards.theta[:, INDEX["sigma_cal"]] < 0.002  # gain is negligible beside an SNR of 200 at most
    pull = ((batch.flux - clean) / batch.error)[quiet]
    assert abs(pull.std() - 1) < 0.05
    assert abs(pull.mean()) < 0.1


def test_the_snr_is_the_median_per_pixel_and_matches_the_stored_one(directory):
    shards = Shards(directory, masks=True)
    batch = shards.evaluation()
    assert np.allclose(batch.snr, median_snr(np.where(batch.mask, batch.flux, np.nan), batch.error, batch.mask))
    ratio = batch.snr / shards.snr
    assert abs(np.median(ratio) - 1) < 0.01
    assert np.quantile(np.abs(ratio - 1), 0.95) < 0.15
    one = np.nanmedian(np.where(batch.mask[7], batch.flux[7] / batch.error[7], np.nan))
    assert np.isclose(batch.snr[7], one)


def test_gain_is_one_number_for_each_detector_with_the_spread_sigma_cal(directory):
    shards = Shards(directory)
    batch = shards.evaluation()
    ratio = batch.flux / shards.flux(slice(None))
    weight = (shards.flux(slice(None)) / batch.error) ** 2
    for detector in (shards.wavelength < 3.736, shards.wavelength > 3.736):
        step = np.average(ratio[:, detector], axis=1, weights=weight[:, detector]) - 1
        loud = (shards.theta[:, INDEX["sigma_cal"]] > 0.03) & (shards.snr > 50)
        assert abs((step[loud] / shards.theta[loud, INDEX["sigma_cal"]]).std() - 1) < 0.1
    nrs1, nrs2 = (
        np.average(ratio[:, d], axis=1, weights=weight[:, d])
        for d in (shards.wavelength < 3.736, shards.wavelength > 3.736)
    )
    assert abs(np.corrcoef(nrs1, nrs2)[0, 1]) < 0.1


def test_masked_pixels_carry_no_flux(directory):
    batch = Shards(directory, masks=True).train(0, 0, 300)
    assert not batch.flux[~batch.mask].any()
    assert (~batch.mask).any()
    assert np.isfinite(batch.flux).all()
    assert (batch.error > 0).all()
    assert Shards(directory).train(0, 0, 300).mask.all()


def test_a_set_larger_than_the_memory_given_to_it_streams(tmp_path, toy_shards):
    toy_shards(tmp_path, 40 * 128, pixels=900)
    size = 40 * 128 * 900 * 4
    tracemalloc.start()
    try:
        shards = Shards(tmp_path)
        held, opening = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for index in range(20):
            shards.train(0, index, 64)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert opening < size / 2  # the flux is mapped, not read
    assert peak - held < size / 4


def test_the_card_says_what_training_needs_to_know(directory):
    card = Shards(directory, masks=True).card
    assert card.masked
    assert not Shards(directory).card.masked
    assert card.preset == "laptop"
    assert card.n_train + card.n_validation == 12 * 128
    assert card.wavelength.shape == (300,)


def test_training_accepts_the_reader(directory):
    batches = Shards(directory, masks=True)
    batch = batches.train(0, 0, 32)
    assert len(batches.card.box) == batch.theta.shape[1] == 15
    assert {f: getattr(batch, f).shape for f in FIELDS} == {
        "theta": (32, 15),
        "flux": (32, 300),
        "error": (32, 300),
        "mask": (32, 300),
        "snr": (32,),
    }
    assert all(getattr(batch, f).dtype == np.float32 for f in FIELDS if f != "mask")


@pytest.mark.parametrize("what", ["missing", "truncated", "foreign", "no set"])
def test_a_broken_set_is_refused_by_name_when_opened(tmp_path, what, toy_shards):
    if what != "no set":
        toy_shards(tmp_path, 3 * 128)
    path = shard_path(tmp_path, 1)
    if what == "missing":
        path.unlink()
    elif what == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif what == "foreign":
        path.write_bytes(shard_path(tmp_path, 2).read_bytes())
    with pytest.raises(UserError, match="config.json" if what == "no set" else r"shard-000001\.h5.*--resume"):
        Shards(tmp_path)
