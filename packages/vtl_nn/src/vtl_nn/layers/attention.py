"""MultiheadAttention, the Transformer's encoder, and positions by sines."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from math import inf, log

import vtl_core as vtl
from vtl_core import AttributeValueError, ShapeError, Tensor, UnsupportedError
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn import init
from vtl_nn.functional.typing import is_number
from vtl_nn.layers.containers import ModuleList
from vtl_nn.layers.dropout import Dropout
from vtl_nn.layers.linear import Linear
from vtl_nn.layers.normalization import LayerNorm
from vtl_nn.module import Buffer, Module, Parameter


class MultiheadAttention(Module):
    """Attention of `num_heads` heads between projections of queries, keys and values, and a projection of the result.

    Masks are PyTorch's: True in `key_padding_mask` (N, S) and in a bool `attn_mask` (L, S) or (N * heads, L, S) means *not*
    to look; floats are added. A query that may see nothing gets zeros where PyTorch gives NaN.

    Shapes:  query (L, N, E), key (S, N, kdim), value (S, N, vdim), with batch_first (N, L, E) and so on, or without N;
             result as query, and weights (N, L, S), or (N, heads, L, S) not averaged, or None
    Errors:  AttributeValueError if heads do not divide embed_dim, or for a dropout outside [0, 1]; UnsupportedError for
             add_bias_kv and add_zero_attn
    Source:  Vaswani et al. 2017, 3.2.2
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise AttributeValueError(f"MultiheadAttention: num_heads={num_heads} must divide embed_dim={embed_dim}")
        if not (is_number(dropout) and 0 <= dropout <= 1):
            raise AttributeValueError(f"MultiheadAttention: dropout={dropout!r} must lie in [0, 1]")
        if add_bias_kv or add_zero_attn:
            raise UnsupportedError("MultiheadAttention: add_bias_kv and add_zero_attn are not here; leave them out")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.in_proj_weight = self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None

        def weight(*shape: int) -> Parameter:
            return Parameter.empty(shape, device=device, dtype=dtype)

        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = weight(3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight, self.k_proj_weight = weight(embed_dim, embed_dim), weight(embed_dim, self.kdim)
            self.v_proj_weight = weight(embed_dim, self.vdim)
        self.in_proj_bias = weight(3 * embed_dim) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw projections by Glorot & Bengio 2010; biases are 0."""
        for w in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if w is not None:
                init.xavier_uniform_(w)
        for b in (self.in_proj_bias, self.out_proj.bias):
            if b is not None:
                init.zeros_(b)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return what the queries found, and the weights if they are needed."""
        alone = query.ndim == 2
        if alone:
            query, key, value = _each(lambda t: t.unsqueeze(0), query, key, value)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = _each(lambda t: t.transpose(0, 1), query, key, value)
        widths = [self.embed_dim, self.kdim, self.vdim]
        if any(t.ndim != 3 or t.shape[2] != e for t, e in zip((query, key, value), widths, strict=True)):
            raise ShapeError(
                f"MultiheadAttention: query {query.shape}, key {key.shape}, value {value.shape} must all have a batch, "
                f"or none, and end in {self.embed_dim}, {self.kdim} and {self.vdim}"
            )
        if not query.shape[0] == key.shape[0] == value.shape[0]:
            raise ShapeError(
                f"MultiheadAttention: batches of {query.shape[0]} queries, {key.shape[0]} keys and {value.shape[0]} values "
                "must be one; expand what is shared"
            )
        batch, length, count = query.shape[0], query.shape[1], key.shape[1]
        q, k, v = self._projected(query, key, value)
        mask = self._mask(batch, length, count, key_padding_mask, attn_mask, q.dtype)
        causal = (
            is_causal and attn_mask is None
        )  # a mask holds causality already: PyTorch's is_causal is a hint beside it
        if causal and mask is not None:
            mask = _with_causality(mask, length, count)
            causal = False
        rate = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = vtl.apply("attention_weights", q, k, v, mask, causal=causal)
            y = F.dropout(weights, rate) @ v
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights.squeeze(0) if alone else weights
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, rate, causal)
        y = self.out_proj(y.transpose(1, 2).reshape(batch, length, self.embed_dim))
        return (y.squeeze(0) if alone else y if self.batch_first else y.transpose(0, 1)), weights

    def _projected(self, *inputs: Tensor) -> list[Tensor]:
        """Queries, keys and values as (N, heads, length, head_dim): of one tensor by one product, else each by its own."""
        first, weight, bias = inputs[0], self.in_proj_weight, self.in_proj_bias
        sizes, heads = [self.embed_dim] * 3, (self.num_heads, self.embed_dim // self.num_heads)
        if weight is not None and all(
            x is first for x in inputs
        ):  # cut where heads are an axis: gradients are joined with no copy between
            joint = F.linear(first, weight, bias)
            found = joint.reshape(*joint.shape[:2], 3 * heads[0], heads[1]).split(heads[0], 2)
        else:
            own = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            weights = own if weight is None else weight.split(sizes)
            biases = (None,) * 3 if bias is None else bias.split(sizes)
            each = (F.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True))  # type: ignore[arg-type]  # one or the other
            found = tuple(x.reshape(*x.shape[:2], *heads) for x in each)
        return [x.transpose(1, 2) for x in found]

    def _mask(
        self, batch: int, length: int, count: int, padding: Tensor | None, mask: Tensor | None, dtype: vtl.DType
    ) -> Tensor | None:
        """Both masks as one of the op's, in which True means to look."""
        found = []
        if mask is not None:
            if mask.shape == (batch * self.num_heads, length, count):
                mask = mask.reshape(batch, self.num_heads, length, count)
            elif mask.shape != (length, count):
                raise ShapeError(
                    f"MultiheadAttention: attn_mask {mask.shape} must be {(length, count)} or {(batch * self.num_heads, length, count)}"
                )
            found.append(mask)
        if padding is not None:
            if padding.shape != (batch, count):
                raise ShapeError(f"MultiheadAttention: key_padding_mask {padding.shape} must be {(batch, count)}")
            found.append(padding.reshape(batch, 1, 1, count))
        if not found:
            return None
        if all(m.dtype is vtl.bool for m in found):
            return ~(found[0] | found[1]) if len(found) == 2 else ~found[0]
        floats = [
            vtl.where(m, -inf, vtl.zeros((), dtype=dtype, device=m.device)) if m.dtype is vtl.bool else m for m in found
        ]
        return floats[0] + floats[1] if len(floats) == 2 else floats[0]

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.embed_dim}, {self.num_heads}, dropout={self.dropout}, batch_first={self.batch_first}"


def _each(change: Callable[[Tensor], Tensor], *tensors: Tensor) -> list[Tensor]:
    """The change of each; what was one tensor stays one, so that self-attention is still seen to be it."""
    made = {key: change(t) for key, t in {id(t): t for t in tensors}.items()}
    return [made[id(t)] for t in tensors]


def _with_causality(mask: Tensor, length: int, count: int) -> Tensor:
    """A mask of the op's in which query i sees keys 0 to i only."""
    past = vtl.arange(length, device=mask.device).reshape(-1, 1) >= vtl.arange(count, device=mask.device)
    return mask & past if mask.dtype is vtl.bool else vtl.where(past, mask, -inf)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class TransformerEncoderLayer(Module):
    """Self-attention and two linear layers, each added to its input and normalized (Vaswani et al. 2017, 3.1).

    `norm_first` normalizes before instead of after (Xiong et al. 2020). Masks are MultiheadAttention's.

    Shapes:  src (L, N, d_model), or (N, L, d_model) with batch_first; result alike
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: init.DTypeLike = None,
    ) -> None:
        place = {"device": device, "dtype": dtype}
        if isinstance(activation, str) and activation not in ACTIVATIONS:
            raise AttributeValueError(
                f"TransformerEncoderLayer: activation={activation!r} must be 'relu', 'gelu' or a function"
            )
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **place)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the encoded sequence."""
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = src + self._attend(self.norm1(src), *masks)
            return x + self._feed(self.norm2(x))
        x = self.norm1(src + self._attend(src, *masks))
        return self.norm2(x + self._feed(x))  # type: ignore[no-any-return]  # a layer's call is Any

    def _attend(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, causal: bool) -> Tensor:
        found, _ = self.self_attn(x, x, x, padding, False, mask, is_causal=causal)
        return self.dropout1(found)  # type: ignore[no-any-return]

    def _feed(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))  # type: ignore[no-any-return]


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer, one after the other, and a norm at the end if given."""

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None) -> None:
        self.layers = ModuleList(deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the encoded sequence."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)


class PositionalEncoding(Module):
    """Add sines and cosines of the position to a sequence, then dropout (Vaswani et al. 2017, 3.5).

    pe[t, 2i] = sin(t / 10000^(2i / d)), pe[t, 2i + 1] = cos of the same

    Shapes:  input (N, L, d_model), or (L, N, d_model) without batch_first; L at most max_len; result alike
    """

    def __init__(self, d_model: int, max_len: int = 5000, dropout: float = 0.0, batch_first: bool = True) -> None:
        if d_model < 1 or max_len < 1:
            raise AttributeValueError(f"PositionalEncoding: d_model={d_model} and max_len={max_len} must be at least 1")
        self.batch_first, self.dropout = batch_first, Dropout(dropout)
        position = vtl.arange(max_len, dtype=vtl.float64).reshape(-1, 1)
        rate = (vtl.arange(0, d_model, 2, dtype=vtl.float64) * (-log(10000.0) / d_model)).exp()
        angle = position * rate
        table = vtl.stack([angle.sin(), angle.cos()], axis=2).reshape(max_len, -1)[:, :d_model]
        self.pe = Buffer(table.float())

    def forward(self, input: Tensor) -> Tensor:
        """Return the sequence with its positions."""
        axis = 1 if self.batch_first else 0
        if input.ndim != 3 or input.shape[axis] > self.pe.shape[0] or input.shape[2] != self.pe.shape[1]:
            raise ShapeError(
                f"PositionalEncoding: input {input.shape} must have 3 axes, at most {self.pe.shape[0]} positions and {self.pe.shape[1]} features"
            )
        places = self.pe[: input.shape[axis]]
        return self.dropout(input + (places if self.batch_first else places.unsqueeze(1)))  # type: ignore[no-any-return]


explain(globals(), whole=True)
