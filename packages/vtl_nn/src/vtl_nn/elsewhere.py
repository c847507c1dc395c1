"""PyTorch's names around layers that are other names here, as vtl_core.elsewhere has those of tensors."""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, str] = {
    "Adam": "nn.optim.Adam",
    "DataLoader": "data.DataLoader",
    "Dataset": "data.Dataset",
    "SGD": "nn.optim.SGD",
    "Tensor": "vtl.Tensor",
    "no_grad": "vtl.no_grad()",
    "relu": "nn.functional.relu(x)",
}

FUNCTIONAL: Mapping[str, str] = {
    "normalize": "x / x.square().sum(-1, keepdim=True).sqrt()",
    "one_hot": "vtl.eye(4)[labels]",
}

MODULE: Mapping[str, str] = {
    "add_module": "setattr(model, name, nn.ReLU())",
    "bfloat16": "model.to(vtl.bfloat16)",
    "cpu": "model.to('cpu')",
    "cuda": "model.to('cuda')",
    "double": "model.to(vtl.float64)",
    "float": "model.to(vtl.float32)",
    "half": "model.to(vtl.float16)",
    "register_buffer": "setattr(model, name, nn.Buffer(x))",
    "register_module": "setattr(model, name, nn.ReLU())",
    "register_parameter": "setattr(model, name, nn.Parameter(x))",
}
