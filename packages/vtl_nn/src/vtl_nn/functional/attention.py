"""Scaled dot-product attention."""

from __future__ import annotations

from math import prod
from typing import Any

import vtl_core as vtl
from vtl_core import AttributeValueError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn.functional.typing import as_tensor, is_number, require_tensors


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query key^T * scale + mask) value; a query that may see no key gets zeros.

    `attn_mask` is bool, True where a query may look, or floats that are added. `is_causal` lets query i see keys 0 to i,
    also where their counts differ; the scale is 1 / sqrt(E) unless given. Every call drops other weights.

    Shapes:  query (..., L, E); key (..., S, E); value (..., S, V); attn_mask broadcasts to (..., L, S); result (..., L, V)
    Errors:  AttributeValueError for a mask beside is_causal, or a probability outside [0, 1]
    Source:  Vaswani et al. 2017, "Attention is all you need", equation 1
    """
    op = "scaled_dot_product_attention"
    if attn_mask is not None and is_causal:
        raise AttributeValueError(f"{op}: give attn_mask or is_causal, not both; a mask can hold causality too")
    if not (is_number(dropout_p) and 0 <= dropout_p <= 1):
        raise AttributeValueError(f"{op}: dropout_p={dropout_p!r} must lie in [0, 1]")
    require_tensors(op, query, key, value)
    if enable_gqa:
        key, value = (_repeated(op, query, t) for t in (key, value))
    options: dict[str, Any] = {"causal": is_causal, "scale": scale}
    if dropout_p:
        batch = query.shape[:-2] if query.ndim >= key.ndim else key.shape[:-2]
        words = prod(batch) * query.shape[-2] * key.shape[-2]
        drawn, counter = vtl.default_context().generator.reserve(words)
        options |= {"dropout": dropout_p, "key": drawn, "counter": counter}
    return as_tensor(vtl.apply("attention", query, key, value, attn_mask, **options)[0])


def _repeated(op: str, query: Tensor, x: Tensor) -> Tensor:
    """Heads of keys or values, each as often as queries share it (Ainslie et al. 2023)."""
    if query.ndim < 3 or x.ndim < 3:
        raise ShapeError(
            f"{op}: enable_gqa needs an axis of heads, (..., heads, L, E); given {query.shape} and {x.shape}"
        )
    heads, groups = query.shape[-3], x.shape[-3]
    if not groups or heads % groups:
        raise ShapeError(f"{op}: {heads} heads of queries do not divide among {groups} of keys and values")
    if heads == groups:
        return x
    lead, rest = x.shape[:-3], x.shape[-2:]
    return x.unsqueeze(-3).expand(*lead, groups, heads // groups, *rest).reshape(*lead, heads, *rest)


explain(globals())
