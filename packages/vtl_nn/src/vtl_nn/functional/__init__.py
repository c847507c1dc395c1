"""Layers as functions, under PyTorch's names: each is one op of the table, or a few, applied to tensors."""

from typing import TYPE_CHECKING, Any

from vtl_nn.functional.activation import (
    celu,
    elu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
)
from vtl_nn.functional.attention import scaled_dot_product_attention
from vtl_nn.functional.convolution import (
    conv1d,
    conv2d,
    conv2d_relu,
    conv2d_relu_max_pool2d,
    conv_transpose1d,
    conv_transpose2d,
    pad,
)
from vtl_nn.functional.dropout import dropout, dropout2d
from vtl_nn.functional.embedding import embedding
from vtl_nn.functional.linear import feed_forward, linear, linear_relu
from vtl_nn.functional.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cosine_similarity,
    cross_entropy,
    hinge_embedding_loss,
    hinge_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    nll_loss,
    sigmoid_focal_loss,
    smooth_l1_loss,
    soft_margin_loss,
)
from vtl_nn.functional.normalization import batch_norm, batch_norm_relu, group_norm, instance_norm, layer_norm, rms_norm
from vtl_nn.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
)
from vtl_nn.functional.typing import Size

if not TYPE_CHECKING:  # a checker would take any name for granted

    def __getattr__(name: str) -> Any:
        from vtl_core.elsewhere import missing
        from vtl_nn.elsewhere import FUNCTIONAL

        raise AttributeError(missing("module 'vtl_nn.functional'", name, FUNCTIONAL))


__all__ = [
    "Size",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "batch_norm_relu",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv2d_relu",
    "conv2d_relu_max_pool2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "dropout2d",
    "elu",
    "embedding",
    "feed_forward",
    "gelu",
    "glu",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "hinge_loss",
    "huber_loss",
    "instance_norm",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "linear_relu",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "mish",
    "mse_loss",
    "nll_loss",
    "pad",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "sigmoid_focal_loss",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
]
