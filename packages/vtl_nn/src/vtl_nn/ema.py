"""EMA: a model whose weights are the moving average of another's."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import vtl_core as vtl
from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain
from vtl_nn.errors import StateError
from vtl_nn.functional.typing import is_number
from vtl_nn.module import Module


class EMA(Module):
    """A copy of `model` whose weights follow it: a = decay * a + (1 - decay) * p, one launch for all (Polyak & Juditsky 1992).

    Call `update()` after each step of the optimizer; the average is `module`, and calling the EMA calls it. Buffers,
    such as running statistics, are copied. Averages of narrow weights are kept in their dtype.

    Errors:  AttributeValueError for a decay outside [0, 1]; StateError if the model has got other parameters since
    """

    def __init__(self, model: Module, decay: float = 0.999) -> None:
        if not (is_number(decay) and 0 <= decay <= 1):
            raise AttributeValueError(f"EMA: decay={decay!r} must lie in [0, 1]")
        self.module = deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
        self._source = (model,)  # hidden from walks over fields: a tuple of modules would be part of the state

    def named_children(self) -> Any:
        """The average only; the model that it follows is not part of it."""
        yield "module", self.module

    def train(self, mode: bool = True) -> EMA:
        """An average is for evaluation: its mode stays."""
        return self

    def update(self) -> None:
        """Take one step towards the model's weights, and its buffers as they are."""
        (model,) = self._source
        pairs: dict[Any, list[tuple[Tensor, Tensor]]] = {}
        ours, theirs = list(self.module.parameters()), list(model.parameters())
        kept, buffers = list(self.module.buffers()), list(model.buffers())
        for what, mine, others in (("parameters", ours, theirs), ("buffers", kept, buffers)):
            if len(mine) != len(others):
                raise StateError(
                    f"EMA: the model has {len(others)} {what} now and the average {len(mine)}; make another EMA of it"
                )
        for average, p in zip([*ours, *kept], [*theirs, *buffers], strict=True):
            if (average.dtype, average.shape, average.device) != (p.dtype, p.shape, p.device):
                raise StateError(
                    f"EMA: the model has {_kind(p)} where the average has {_kind(average)}; move or cast both alike: "
                    "ema.to(...), or make another EMA of it"
                )
        for average, p in zip(ours, theirs, strict=True):
            pairs.setdefault(p.dtype, []).append((average, p.detach()))
        with vtl.no_grad():
            for group in pairs.values():
                vtl.update("average", group, {"decay": self.decay})
            for statistic, buffer in zip(kept, buffers, strict=True):
                statistic.copy_(buffer)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the average gives."""
        return self.module(*args, **kwargs)


def _kind(tensor: Tensor) -> str:
    """What must be alike for one to follow the other, in words."""
    return f"{tensor.dtype.name} {tensor.shape} on {tensor.device}"


explain(globals(), whole=True)
