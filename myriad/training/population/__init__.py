"""Many trainings of one shape at once: seeds of one configuration, or the trials of a study."""

from myriad.training.population.population import (
    Population,
    PopulationState,
    require_seeds,
    saved_shapes,
)

__all__ = [
    "Population",
    "PopulationState",
    "require_seeds",
    "saved_shapes",
]
