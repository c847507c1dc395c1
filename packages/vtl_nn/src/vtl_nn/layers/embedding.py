"""Embedding."""

from __future__ import annotations

import vtl_core as vtl
from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn import init
from vtl_nn.functional.typing import is_whole
from vtl_nn.module import Module, Parameter


class Embedding(Module):
    """A table of vectors, looked up by number; the row `padding_idx` starts at zero and gets no gradient.

    Shapes:  weight (num_embeddings, embedding_dim), standard normal; input (...); result (..., embedding_dim)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        if padding_idx is not None and not (is_whole(padding_idx) and -num_embeddings <= padding_idx < num_embeddings):
            raise AttributeValueError(
                f"Embedding: padding_idx={padding_idx!r} must be an int and lie in [{-num_embeddings}, {num_embeddings})"
            )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % num_embeddings
        self.weight = Parameter.empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw from the standard normal distribution."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with vtl.no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows."""
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """The arguments."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


explain(globals(), whole=True)
