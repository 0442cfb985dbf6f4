"""Which networks can be pooled: those of the same parameters, pixels, opacities, dial and data."""

from collections.abc import Sequence

from kappaflow.errors import UserError
from kappaflow.inference.checkpoint import Checkpoint
from kappaflow.spectra import same_pixels
from kappaflow.tables.table_names import recorded_table

__all__ = ["refuse_to_mix"]


def refuse_to_mix(members: Sequence[Checkpoint]) -> None:
    """Raise, naming what differs, unless all `members` can be pooled."""
    first = members[0]
    for i, other in enumerate(members[1:], start=1):
        if other.box != first.box:
            raise UserError(
                f"posterior: network {i} {_boxes_apart(other, first)} network 0; only networks of the same parameters "
                "and priors can be pooled"
            )
        here, there = first.card.wavelength, other.card.wavelength
        if not same_pixels(here, there):
            raise UserError(
                f"posterior: network {i} sees {len(there)} pixels (preset {other.card.preset!r}), network 0 "
                f"{len(here)} (preset {first.card.preset!r}); only networks on the same pixels can be pooled"
            )
        here, there = recorded_table(first.card.opacity), recorded_table(other.card.opacity)
        if not here.same(there):
            raise UserError(
                f"posterior: network {i} was trained with opacity table {there}, network 0 with {here}; only networks "
                "of the same opacities can be pooled"
            )
        if other.card.dial != first.card.dial:
            one, two = (
                "no dial" if c.dial is None else "a dial from {:g} to {:g}".format(*c.dial)
                for c in (other.card, first.card)
            )
            raise UserError(
                f"posterior: network {i} has {one}, network 0 {two}; only networks with the same dial can be pooled"
            )
        if other.card.digest != first.card.digest:
            raise UserError(
                f"posterior: network {i} was trained on data {other.card.digest}, network 0 on {first.card.digest}; "
                "only networks of the same simulation (`kappaflow simulate` with the same options) can be pooled"
            )


def _boxes_apart(one: Checkpoint, other: Checkpoint) -> str:
    """Say by what the parameters of `one` differ from those of `other`."""
    more = [name for name in one.box.names if name not in other.box.names]
    less = [name for name in other.box.names if name not in one.box.names]
    words = [f"{verb} {', '.join(names)}" for verb, names in (("has", more), ("lacks", less)) if names]
    return f"{' and '.join(words)}, unlike" if words else "has other priors than"
