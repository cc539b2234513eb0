"""Many trainings of one shape at once: seeds of one configuration, or the trials of a study."""

from myriad.training.population.population import (
    DeviceState,
    Population,
    PopulationState,
    default_mapping,
    require_seeds,
    saved_shapes,
)

__all__ = [
    "DeviceState",
    "Population",
    "PopulationState",
    "default_mapping",
    "require_seeds",
    "saved_shapes",
]
