"""PyTorch's names that are other names here: what the error about a missing one adds. docs/from-pytorch.md lists them.

Each is a Python expression in the names that such errors are read beside: vtl, nn (vtl_nn), data (vtl_data), vsl
(vsl_compute), tensors x, y, a mask, and numbers. Loaded when the first such error is made.
"""

from __future__ import annotations

from collections.abc import Mapping

FUNCTIONS: Mapping[str, str] = {
    # making tensors, and what they are made of
    "as_tensor": "vtl.asarray(array)",
    "from_numpy": "vtl.asarray(array)",
    "is_tensor": "isinstance(x, vtl.Tensor)",
    "numel": "x.numel()",
    "randn_like": "vtl.randn(x.shape)",
    "rand_like": "vtl.rand(x.shape)",
    "double": "vtl.float64",
    "float": "vtl.float32",
    "half": "vtl.float16",
    "int": "vtl.int32",
    "long": "vtl.int64",
    "short": "vtl.int16",
    # places
    "cuda": "any(device.backend == 'cuda' for device in vsl.devices())",
    "device": "'cuda:0'",
    # gradients
    "inference_mode": "vtl.no_grad()",
    "set_grad_enabled": "vtl.enable_grad() if training else vtl.no_grad()",
    # shapes
    "flatten": "x.flatten()",
    "permute": "x.permute(1, 0)",
    "split": "x.split(1)",
    "chunk": "x.split(-(-len(x) // 3))",
    "t": "x.T",
    "transpose": "x.transpose(0, 1)",
    "unsqueeze": "x.unsqueeze(0)",
    # mathematics
    "allclose": "bool(((x - y).abs() <= 1e-8 + 1e-5 * y.abs()).all())",
    "amax": "x.amax(0)",
    "amin": "x.amin(0)",
    "bmm": "x @ y.mT",
    "clamp": "vtl.clip(x, 0, 1)",
    "cumsum": "x.cumsum(0)",
    "div": "vtl.divide(x, y)",
    "eq": "vtl.equal(x, y)",
    "ge": "vtl.greater_equal(x, y)",
    "gt": "vtl.greater(x, y)",
    "index_select": "vtl.take(x, indices, axis=0)",
    "le": "vtl.less_equal(x, y)",
    "lt": "vtl.less(x, y)",
    "masked_fill": "vtl.where(mask, 0, x)",
    "mm": "x @ y.T",
    "mul": "vtl.multiply(x, y)",
    "ne": "vtl.not_equal(x, y)",
    "neg": "vtl.negative(x)",
    "norm": "x.square().sum().sqrt()",
    "sub": "vtl.subtract(x, y)",
    "topk": "x.sort(descending=True).values[:, :3]",
    # what other packages hold
    "amp": "nn.amp.autocast()",
    "load": "nn.load('model.safetensors')",
    "nn": "nn.Linear(2, 3)",
    "optim": "nn.optim.SGD",
    "save": "nn.save(model, 'model.safetensors')",
    "utils": "data.DataLoader",
}

METHODS: Mapping[str, str] = {
    "chunk": "x.split(-(-len(x) // 3))",
    "cuda": "x.to('cuda')",
    "data": "x.detach()",
    "detach_": "x.detach()",
    "element_size": "x.itemsize",
    "expand_as": "x.expand(y.shape)",
    "grad_fn": "x.node",
    "index_select": "vtl.take(x, indices, axis=0)",
    "is_cuda": "x.device.startswith('cuda')",
    "masked_fill": "vtl.where(mask, 0, x)",
    "mm": "x @ y.T",
    "bmm": "x @ y.mT",
    "nelement": "x.numel()",
    "new_ones": "vtl.ones(2, dtype=x.dtype, device=x.device)",
    "new_tensor": "vtl.tensor([2.0], dtype=x.dtype, device=x.device)",
    "new_zeros": "vtl.zeros(2, dtype=x.dtype, device=x.device)",
    "norm": "x.square().sum().sqrt()",
    "normal_": "nn.init.normal_(x)",
    "repeat": "vtl.concat([x, x], axis=0)",
    "reshape_as": "x.reshape(y.shape)",
    "stride": "x.strides",
    "t": "x.T",
    "topk": "x.sort(descending=True).values[:, :3]",
    "type": "x.to(vtl.float64)",
    "type_as": "x.to(y)",
    "unbind": "list(x)",
    "uniform_": "nn.init.uniform_(x)",
    "view_as": "x.view(y.shape)",
}

ARGUMENTS: Mapping[str, str] = {  # in words: what is written instead of the argument
    "device_type": "tensors stay where they are, whatever their device: leave it out",
    "dim": "functions name it axis, as the array API does, methods of tensors dim",
    "inplace": "what comes out is a new tensor: leave it out",
    "keepdim": "functions name it keepdims, as the array API does, methods of tensors keepdim",
    "non_blocking": "copies to a device do not wait: leave it out",
    "out": "what comes out is a new tensor: leave it out, or x.copy_() it",
    "weights": "nn.load_into(model, file) reads them from a safetensors file",
    "pretrained": "nn.load_into(model, file) reads weights from a safetensors file",
}


def missing(owner: str, name: str, table: Mapping[str, str]) -> str:
    """The text of an AttributeError: Python's, and what is written here instead of PyTorch's name, if it is one."""
    instead = f"; PyTorch's {name} is {table[name]} here" if name in table else ""
    return f"{owner} has no attribute {name!r}{instead}"
