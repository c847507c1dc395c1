"""PyTorch's nn.utils: clipping of gradients."""

from vtl_nn.utils.clipping import clip_grad_norm_, clip_grad_value_, get_total_norm

__all__ = ["clip_grad_norm_", "clip_grad_value_", "get_total_norm"]
