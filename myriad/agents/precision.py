"""The dtypes that a network keeps its parameters in, computes in and answers in."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Precision:
    """Names of dtypes: float32, bfloat16 or float16.

    Attributes:
        param_dtype: of the parameters.
        compute_dtype: of products and activations.
        output_dtype: of what the network returns.
    """

    param_dtype: str = "float32"
    compute_dtype: str = "float32"
    output_dtype: str = "float32"
