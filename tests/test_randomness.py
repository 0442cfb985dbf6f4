"""One dialect of addressed randomness: same address, same numbers; other addresses, other numbers."""

import re
from pathlib import Path

import numpy as np
import pytest

import kappaflow
from kappaflow.randomness import Stream, generator, philox, torch_seed

ROOT = Path(kappaflow.__file__).parent
MAKERS = re.compile(r"^(?!\s*(?:>>>|\.\.\.)).*(?:default_rng|Philox|SeedSequence|RandomState|np\.random\.seed)", re.M)


def test_no_other_module_makes_a_generator():
    makers = {str(p.relative_to(ROOT)) for p in ROOT.rglob("*.py") if MAKERS.search(p.read_text(encoding="utf-8"))}
    assert makers == {"randomness.py"}


@pytest.mark.parametrize(
    ("purpose", "place", "words"),
    [("posterior", (1, 2), (9, 1, 2)), ("known scale", (4,), (9, 5, 4)), ("bootstrap", (), (9, 0xB007))],
)
def test_purposes_that_were_drawn_before_keep_their_numbers(purpose, place, words):
    assert np.array_equal(generator(purpose, 9, *place).random(5), np.random.default_rng(words).random(5))


def test_every_word_of_an_address_counts():
    addresses = [("a", 0), ("b", 0), ("a", 1), ("a", 0, 0), ("a", 0, 1), ("posterior", 0), ("posterior", 1)]
    assert len({generator(*address).random() for address in addresses}) == len(addresses)
    seeds = [torch_seed("dropout", 0), torch_seed("weights", 0), torch_seed("dropout", 1), torch_seed("dropout", 0, 1)]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_a_generator_is_the_first_of_its_stream():
    assert generator("shuffle", 3, 4).random() == Stream("shuffle", 3, 4).at(0).random()
    assert philox(7).random() != philox(8).random()
