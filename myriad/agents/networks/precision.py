"""The dtypes of a network.

Products and activations are in `compute_dtype`. Losses, reductions, layer norm and the optimiser
always stay in float32.
"""

import dataclasses
from typing import Any

from myriad.errors import InvalidArgumentError, UnknownNameError, shown

DTYPES = ("float32", "bfloat16", "float16")
DYNAMIC = "dynamic"
_OFF = "off"


@dataclasses.dataclass(frozen=True)
class Precision:
    """The dtypes of a network, each float32, bfloat16 or float16 by name.

    Attributes:
        param_dtype: dtype of the parameters.
        compute_dtype: dtype of products and activations.
        output_dtype: dtype of the network's outputs.

    Raises:
        UnknownNameError: there is no such dtype.
    """

    param_dtype: str = "float32"
    compute_dtype: str = "float32"
    output_dtype: str = "float32"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value not in DTYPES:
                raise UnknownNameError(field.name, value, DTYPES)

    @classmethod
    def of(cls, learner: Any) -> "Precision":
        """Return the precision from a learner's hyperparameters of the same names.

        Raises:
            UnknownNameError: there is no such dtype.
            InvalidArgumentError: `loss_scaling` has an unknown value, or is off with float16.
        """
        precision = cls(learner.param_dtype, learner.compute_dtype, learner.output_dtype)
        scaling = learner.loss_scaling
        if scaling not in (DYNAMIC, _OFF):
            raise InvalidArgumentError(
                "loss_scaling", f"must be {DYNAMIC!r} or {_OFF!r}, but got {shown(scaling)}."
            )
        if scaling == _OFF and precision.needs_loss_scale:
            raise InvalidArgumentError(
                "loss_scaling",
                f"must be {DYNAMIC!r} with float16, whose small gradients vanish "
                f"without it, but got {_OFF!r}.",
            )
        return precision

    @property
    def hidden(self) -> "Precision":
        """The precision of a hidden layer, whose outputs are activations."""
        return dataclasses.replace(self, output_dtype=self.compute_dtype)

    @property
    def before_norm(self) -> "Precision":
        """The precision of a layer whose outputs are normalised."""
        return dataclasses.replace(self, output_dtype="float32")

    @property
    def needs_loss_scale(self) -> bool:
        """Whether gradients pass through float16, in which values below 6e-8 vanish."""
        return "float16" in (self.compute_dtype, self.output_dtype)


# The default precision of networks and layers.
FLOAT32 = Precision()
