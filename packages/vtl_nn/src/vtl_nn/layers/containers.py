"""Sequential, ModuleList and ModuleDict, and the builder from a Context that VTL has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import vtl_core as vtl
from vtl_core import DTypeError, ShapeError, Tensor
from vtl_core.arguments import explain
from vtl_nn import functional as F
from vtl_nn.layers.activation import ELU, GELU, SELU, LeakyReLU, LogSoftmax, Mish, ReLU, Sigmoid, SiLU, Softmax, Tanh
from vtl_nn.layers.convolution import Conv2d
from vtl_nn.layers.dropout import Dropout
from vtl_nn.layers.linear import Linear
from vtl_nn.layers.normalization import BatchNorm1d, BatchNorm2d, LayerNorm
from vtl_nn.layers.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from vtl_nn.layers.shape import Flatten
from vtl_nn.module import Module, is_its_own

# What a layer and a ReLU behind it are as one op, by the layer's very type: a subclass may compute something else.
WITH_RELU: Mapping[type[Module], Callable[[Any, Tensor], Tensor]] = {
    Linear: lambda layer, input: F.linear_relu(input, layer.weight, layer.bias),
    Conv2d: lambda layer, input: layer.by(F.conv2d_relu, input),
    BatchNorm1d: lambda layer, input: layer.by(F.batch_norm_relu, input),
    BatchNorm2d: lambda layer, input: layer.by(F.batch_norm_relu, input),
}


def _pooled(layer: Any, pool: Any, input: Tensor) -> Tensor:
    """A convolution, a ReLU and pooling. A window of padding alone is -inf behind a ReLU and would be 0 in front of it."""
    if pool.padding not in (0, (0, 0)):
        return pool.forward(layer.by(F.conv2d_relu, input))  # type: ignore[no-any-return]  # a Tensor
    return layer.by(  # type: ignore[no-any-return]  # a Tensor
        F.conv2d_relu_max_pool2d,
        input,
        pool_size=pool.kernel_size,
        pool_stride=pool.stride,
        pool_dilation=pool.dilation,
        pool_ceil=pool.ceil_mode,
    )


# What a layer, a ReLU behind it and a layer behind that are as one op, likewise.
AROUND_RELU: Mapping[tuple[type[Module], type[Module]], Callable[[Any, Any, Tensor], Tensor]] = {
    (Linear, Linear): lambda one, two, input: F.feed_forward(input, one.weight, two.weight, one.bias, two.bias),
    (Conv2d, MaxPool2d): _pooled,
}


def _applied(layers: Sequence[Module], at: int, input: Tensor) -> tuple[Tensor, int]:
    """What the layer at this place makes of the input, those behind it as one op with it where they can be; the next place."""
    first, left = layers[at], len(layers) - at
    together = WITH_RELU.get(type(first)) if left > 1 and type(layers[at + 1]) is ReLU else None
    if together is None or is_its_own(first) or is_its_own(layers[at + 1]):
        return first(input), at + 1
    around = AROUND_RELU.get((type(first), type(layers[at + 2]))) if left > 2 else None
    if around is None or is_its_own(layers[at + 2]):
        return together(first, input), at + 2
    return around(first, layers[at + 2], input), at + 3


class Sequential(Module):
    """Layers one after the other, each a field named by its number: `model[0]`, `model[-1]`, `model[2:]`, `len(model)`.

    A dict of layers gives each its name in place of the number: Sequential({"first": Linear(2, 3), "last": Linear(3, 1)}).
    """

    def __init__(self, *layers: Module | Mapping[str, Module]) -> None:
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            for name, named in ModuleDict(layers[0]).items():
                setattr(self, name, named)
            return
        for layer in layers:
            self.append(layer)  # type: ignore[arg-type]  # which refuses what is none

    @staticmethod
    def from_context(context: vtl.Context) -> Builder:
        """Start an empty model whose layers are added by name, on the context's device."""
        return Builder(context)

    def append(self, layer: Module) -> Self:
        """Add a layer at the end."""
        if not isinstance(layer, Module):
            raise DTypeError(
                f"Sequential: layer {len(self)} is {type(layer).__name__}, not a Module; wrap a function in one"
            )
        setattr(self, str(len(self)), layer)
        return self

    def forward(self, input: Tensor) -> Tensor:
        """Apply each layer to the result of the one before.

        A linear layer, convolution or batch normalization and a ReLU after it are one op; so are a linear layer, a ReLU and
        a linear layer, and a convolution, a ReLU and a MaxPool2d without padding.
        """
        layers, at = list(self.children()), 0
        while at < len(layers):
            input, at = _applied(layers, at, input)
        return input

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self.children()))

    def __getitem__(self, index: int | slice) -> Any:
        """Return one layer, or a Sequential of several that shares them."""
        named = list(self.named_children())
        if not isinstance(index, slice):
            return named[index][1]
        numbered = all(name.isdecimal() for name, _ in named)
        return Sequential(*(layer for _, layer in named[index])) if numbered else Sequential(dict(named[index]))


class ModuleList(Module):
    """Modules in a list that a model calls as it likes: indexed, sliced, appended to; names are numbers, as PyTorch's."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self.extend(modules)

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        if not isinstance(module, Module):
            raise DTypeError(f"ModuleList: item {len(self)} is {type(module).__name__}, not a Module")
        setattr(self, str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add several."""
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self.children()))

    def __getitem__(self, index: int | slice) -> Any:
        """Return one module, or a ModuleList of several that shares them."""
        found = list(self)[index]
        return ModuleList(found) if isinstance(found, list) else found

    def __setitem__(self, index: int, module: Module) -> None:
        """Put another module in a place."""
        if not isinstance(module, Module):
            raise DTypeError(f"ModuleList: item {index} is {type(module).__name__}, not a Module")
        setattr(self, str(range(len(self))[index]), module)


class ModuleDict(Module):
    """Modules by name, in the order in which they were added."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        self.update(modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace several."""
        pairs: list[Any] = list(modules.items() if isinstance(modules, Mapping) else modules)
        for place, pair in enumerate(pairs):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise DTypeError(
                    f"ModuleDict: item {place} is {type(pair).__name__}; it takes a dict, or pairs of a name and a Module"
                )
        for name, module in pairs:
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        """Add or replace one."""
        key: object = name
        item: object = module
        if not (isinstance(item, Module) and isinstance(key, str) and key and "." not in key):
            raise DTypeError(f"ModuleDict: {key!r} is {type(item).__name__}; it takes a Module by a name without a dot")
        if hasattr(type(self), name):
            raise DTypeError(f"ModuleDict: {name!r} is a method here, and no name for a module")
        setattr(self, name, module)

    def __getitem__(self, name: str) -> Module:
        """Return one module; KeyError if there is none of that name."""
        found = vars(self)[name]
        if not isinstance(found, Module):
            raise KeyError(name)
        return found

    def __delitem__(self, name: str) -> None:
        del vars(self)[name]

    def __contains__(self, name: object) -> bool:
        return any(name == key for key in self.keys())  # the names of a dictionary that is no mapping

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def keys(self) -> Iterator[str]:
        """The names."""
        return (name for name, _ in self.named_children())

    def values(self) -> Iterator[Module]:
        """The modules."""
        return self.children()

    def items(self) -> Iterator[tuple[str, Module]]:
        """Names and modules."""
        return self.named_children()


class Builder(Sequential):
    """A Sequential whose layers are added by name; the sizes of inputs follow from `input(shape)` and what stands before.

    model = nn.Sequential.from_context(context).input((3, 32, 32)).conv2d(32, 3, padding=1).relu().maxpool2d(2).flatten().linear(10)

    It can be called, trained and saved at any time, as any model.
    """

    def __init__(self, context: vtl.Context) -> None:
        self.context = context
        self.shape: tuple[int, ...] | None = None  # of one sample, after the last layer

    def input(self, shape: Sequence[int]) -> Self:
        """State the shape of one sample, without the batch."""
        self.shape = tuple(shape)
        return self

    def add(self, layer: Module) -> Self:
        """Add any layer."""
        layer.to(self.context.device)
        self.append(layer)
        if self.shape is not None:
            with vtl.no_grad():  # a batch of none costs nothing and has the right shape
                self.shape = layer(vtl.zeros((0, *self.shape), device=self.context.device)).shape[1:]
        return self

    def _size(self, layer: str, axis: int, ndim: int | None = None) -> int:
        if self.shape is None:
            raise ShapeError(
                f"{layer}: the shape of its input is not known; call input(shape) first, such as input((3, 32, 32))"
            )
        if ndim is not None and len(self.shape) != ndim:
            raise ShapeError(f"{layer}: its input is {self.shape}, and {ndim} axes are needed besides the batch")
        return self.shape[axis]

    def conv2d(self, out_channels: int, kernel_size: F.Size, **options: Any) -> Self:
        """Add Conv2d."""
        return self.add(Conv2d(self._size("conv2d", 0, 3), out_channels, kernel_size, **options))

    def linear(self, out_features: int, bias: bool = True) -> Self:
        """Add Linear."""
        return self.add(Linear(self._size("linear", -1), out_features, bias))

    def maxpool2d(self, kernel_size: F.Size = 2, **options: Any) -> Self:
        """Add MaxPool2d, which halves height and width unless told otherwise."""
        return self.add(MaxPool2d(kernel_size, **options))

    def avgpool2d(self, kernel_size: F.Size = 2, **options: Any) -> Self:
        """Add AvgPool2d, likewise."""
        return self.add(AvgPool2d(kernel_size, **options))

    def global_avgpool2d(self) -> Self:
        """Add AdaptiveAvgPool2d(1): the average of each channel."""
        return self.add(AdaptiveAvgPool2d(1))

    def batchnorm(self, **options: Any) -> Self:
        """Add BatchNorm2d for images, else BatchNorm1d."""
        channels = self._size("batchnorm", 0)
        images = self.shape is not None and len(self.shape) == 3
        return self.add((BatchNorm2d if images else BatchNorm1d)(channels, **options))

    def layernorm(self, **options: Any) -> Self:
        """Add LayerNorm over the last axis."""
        return self.add(LayerNorm(self._size("layernorm", -1), **options))

    def dropout(self, p: float = 0.5) -> Self:
        """Add Dropout."""
        return self.add(Dropout(p))

    def flatten(self) -> Self:
        """Add Flatten."""
        return self.add(Flatten())

    def relu(self) -> Self:
        """Add ReLU."""
        return self.add(ReLU())

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """Add LeakyReLU."""
        return self.add(LeakyReLU(negative_slope))

    def elu(self, alpha: float = 1.0) -> Self:
        """Add ELU."""
        return self.add(ELU(alpha))

    def selu(self) -> Self:
        """Add SELU."""
        return self.add(SELU())

    def sigmoid(self) -> Self:
        """Add Sigmoid."""
        return self.add(Sigmoid())

    def tanh(self) -> Self:
        """Add Tanh."""
        return self.add(Tanh())

    def gelu(self, approximate: str = "none") -> Self:
        """Add GELU."""
        return self.add(GELU(approximate))

    def silu(self) -> Self:
        """Add SiLU."""
        return self.add(SiLU())

    def mish(self) -> Self:
        """Add Mish."""
        return self.add(Mish())

    def softmax(self, dim: int = -1) -> Self:
        """Add Softmax; not before CrossEntropyLoss, which wants logits."""
        return self.add(Softmax(dim))

    def log_softmax(self, dim: int = -1) -> Self:
        """Add LogSoftmax."""
        return self.add(LogSoftmax(dim))


explain(globals(), whole=True)
