"""PyTorch's nn.utils: clipping of gradients, and sequences of different lengths in `rnn`."""

from vtl_nn.utils import rnn
from vtl_nn.utils.clipping import clip_grad_norm_, clip_grad_value_, get_total_norm

__all__ = ["clip_grad_norm_", "clip_grad_value_", "get_total_norm", "rnn"]
