"""Many trainings of one shape at once: seeds of one configuration, or the trials of a study."""

from myriad.training.population.population import (
    Population,
    PopulationState,
    default_mapping,
    require_seeds,
    saved_shapes,
)

__all__ = [
    "Population",
    "PopulationState",
    "default_mapping",
    "require_seeds",
    "saved_shapes",
]
