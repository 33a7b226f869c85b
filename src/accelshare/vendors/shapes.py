"""Shapes: the sizes into which a vendor's cards can be divided, and what a slice costs.

Belongs here: from requested units to a shape and its units. Extender and agent both count by these functions, so that a pod
is counted with what its container gets. Never: which card has room.
"""

from accelshare.vendors.profile import Profile, Shape


def shape_for(profile: Profile, units: int) -> Shape | None:
    """The smallest shape that holds so many units; None if none does, or the profile has no shapes."""
    holding = (shape for shape in profile.request.shapes if units_of(profile, shape) >= units)
    return min(holding, key=lambda shape: shape.mib, default=None)


def units_of(profile: Profile, shape: Shape) -> int:
    """The size of a shape in units. A profile with shapes has one unit, of which each is a multiple (`agreement.py`)."""
    return round(shape.mib / next(iter(profile.unit.mib.values())))


def cost(profile: Profile, units: int) -> int | None:
    """The units that a slice of so many units takes from its card: those of its shape. None: it is larger than every shape."""
    if not profile.request.shapes or not units:
        return units
    shape = shape_for(profile, units)
    return units_of(profile, shape) if shape is not None else None
