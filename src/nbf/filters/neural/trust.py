"""How far a model is trusted beside what particles say themselves."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from nbf.filters.checks import check_numbers
from nbf.filters.neural.branch import CarryRule


class Trust(eqx.Module):
    """What the default proposals of a neural filter take from a measurement: `nbf.fit` makes it (`nbf.fitting.trust`).

    The numbers are those of a filter whose model was not measured.
    """

    model_share: float | Float[Array, ""] = 0.5
    """Of a `RegeneratingProposal`: the model's share of a belief beside a kernel's."""
    kernel_scale: float | Float[Array, ""] = 0.7
    """Of a `RegeneratingProposal`: factor of Silverman's bandwidth."""
    carry: CarryRule = CarryRule()
    """Of a `BranchProposal`: how much of a belief carried branches stand for."""

    def __check_init__(self) -> None:
        check_numbers("Trust", most=1.0, model_share=self.model_share)
        check_numbers("Trust", above=True, kernel_scale=self.kernel_scale)
