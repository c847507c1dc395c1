"""Whatever stands in the place of an argument, of whichever layer, loss, optimizer or schedule: it works, or an error of ours names it."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

random = np.random.default_rng(4)
IMAGES, SEQUENCES, ROWS = (
    vtl.tensor(random.standard_normal(s, dtype=np.float32)) for s in ((2, 4, 6, 6), (2, 4, 6), (4, 6))
)
SHARES, LABELS, SIGNS = ROWS.sigmoid(), vtl.tensor([0, 1, 2, 3]), vtl.tensor([1, -1, 1, 1])

WRONG = {
    "None": None, "text": "x", "empty text": "", "bytes": b"a", "an array": np.ones((2, 3), np.float32), "an empty array": np.zeros((0, 2)),
    "names": np.array(["a", "b"]), "objects": np.array([None, 1], object), "a list": [1, 2], "nothing": (), "a list in a list": [[1], [1, 2]],
    "a dict": {"a": 1}, "a set": {1, 2}, "an object": object(), "a class": nn.Linear, "a function": len, "a module": nn.ReLU(), "a slice": slice(2),
    "minus five": -5, "a half": 0.5, "nan": float("nan"), "infinity": float("inf"), "2**63": 2**63, "10**400": 10**400, "complex": 1j,
    "a tensor": vtl.ones(2, 3), "whole numbers": vtl.tensor([1, 2, 3]), "no elements": vtl.zeros(0, 3), "a number's tensor": vtl.tensor(2.5),
    "NaN's tensor": vtl.full((4, 6), float("nan")), "a date": np.datetime64("2020-01-01"),
    "a dtype": vtl.float32, "a device": "cuda", "sizes": (2**40,) * 2,
}  # fmt: skip

# what makes a layer that is right, and what it is then called with; every option that is not named here stays as it is
LAYERS = {
    **{name: ({}, (ROWS,)) for name in (
        "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "LeakyReLU", "LogSigmoid", "Mish", "PReLU",
        "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Dropout",
    )},
    **{name: ({"dim": -1}, (ROWS,)) for name in ("LogSoftmax", "Softmax", "Softmin")},
    **{f"{name}{n}d": (options, (IMAGES if n == 2 else SEQUENCES,)) for n in (1, 2) for name, options in {
        "MaxPool": {"kernel_size": 2}, "AvgPool": {"kernel_size": 2}, "AdaptiveAvgPool": {"output_size": 2}, "Dropout": {},
        "BatchNorm": {"num_features": 4}, "InstanceNorm": {"num_features": 4, "affine": True},
        "Conv": {"in_channels": 4, "out_channels": 2, "kernel_size": 3}, "ConvTranspose": {"in_channels": 4, "out_channels": 2, "kernel_size": 3},
    }.items()},
    **{name: ({"input_size": 6, "hidden_size": 3}, (SEQUENCES,)) for name in ("RNN", "LSTM", "GRU")},
    "Threshold": ({"threshold": 0.1, "value": 2.0}, (ROWS,)), "Flatten": ({}, (IMAGES,)),
    "Unflatten": ({"dim": 1, "unflattened_size": (2, 3)}, (ROWS,)), "Embedding": ({"num_embeddings": 5, "embedding_dim": 3}, (LABELS,)),
    "GroupNorm": ({"num_groups": 2, "num_channels": 4}, (IMAGES,)), "LayerNorm": ({"normalized_shape": 6}, (ROWS,)),
    "RMSNorm": ({"normalized_shape": 6}, (ROWS,)), "Linear": ({"in_features": 6, "out_features": 2}, (ROWS,)),
    "MultiheadAttention": ({"embed_dim": 6, "num_heads": 2}, (SEQUENCES,) * 3),
    "TransformerEncoderLayer": ({"d_model": 6, "nhead": 2, "dim_feedforward": 8}, (SEQUENCES,)),
    **{name: ({}, (ROWS, SHARES)) for name in (
        "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss", "KLDivLoss", "HingeLoss", "HingeEmbeddingLoss", "FocalLoss",
        "BCEWithLogitsLoss", "CosineSimilarity",
    )},
    "BCELoss": ({}, (SHARES, SHARES)), "CrossEntropyLoss": ({}, (ROWS, LABELS)), "NLLLoss": ({}, (ROWS, LABELS)),
    "MarginRankingLoss": ({}, (ROWS, ROWS, SHARES)), "CosineEmbeddingLoss": ({}, (ROWS, ROWS, SIGNS)),
}  # fmt: skip
MODULES = {
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "Module",
    "EMA",
    "PositionalEncoding",
    "TransformerEncoder",
}  # made of other things


def options_of(kind, named):
    """Every option with its default, or as named."""
    known = inspect.signature(kind.__init__).parameters.values()
    return {p.name: p.default for p in known if p.default is not p.empty} | named


def only_ours(call):
    """The call works, or says in one line and in our words what is wrong; sizes past an integer are Python's OverflowError."""
    said = "works as it is"
    try:
        call()
    except (vtl.VslError, OverflowError) as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) > 12


def test_every_layer_and_loss_stands_in_the_table():
    kinds = {
        name for name in nn.__all__ if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), nn.Module)
    }
    assert kinds - MODULES == LAYERS.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYERS)
def test_an_option_of_a_layer_works_or_is_refused(name):
    """Where the layer is made or where it is called; its printed form, state and mode work as well."""
    kind, (named, inputs) = getattr(nn, name), LAYERS[name]
    kind(**named)(*inputs)
    options = options_of(kind, named)

    def use(option, value):
        if option == "num_layers" and isinstance(value, int) and value > 9:
            return  # as many layers are made as are asked for
        if option == "activation" and callable(value):
            return  # what it raises is its own
        layer = kind(**(options | {option: value}))
        layer(*inputs)
        repr(layer)
        layer.eval().state_dict()

    for option in options:
        for value in WRONG.values():
            only_ours(lambda option=option, value=value: use(option, value))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYERS)
def test_what_a_layer_is_called_with_works_or_is_refused(name):
    kind, (named, inputs) = getattr(nn, name), LAYERS[name]
    layer = kind(**named)

    for place in range(len(inputs)):
        for value in WRONG.values():
            only_ours(lambda place=place, value=value: layer(*inputs[:place], value, *inputs[place + 1 :]))


SCHEDULES = {
    "ConstantLR": {}, "CosineAnnealingLR": {"T_max": 4}, "CosineAnnealingWarmRestarts": {"T_0": 2}, "ExponentialLR": {"gamma": 0.9}, "LinearLR": {},
    "MultiStepLR": {"milestones": [2, 3]}, "OneCycleLR": {"max_lr": 0.1, "total_steps": 10}, "PolynomialLR": {}, "StepLR": {"step_size": 2},
    "ReduceLROnPlateau": {},
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_option_or_a_state_of_a_schedule_works_or_is_refused(name):
    kind = getattr(nn.optim.lr_scheduler, name)
    step = (1.0,) if name == "ReduceLROnPlateau" else ()

    def use(option, value):
        optimizer = nn.optim.SGD([vtl.ones(2)], lr=0.1, momentum=0.9)
        schedule = kind(optimizer, **(options_of(kind, SCHEDULES[name]) | {option: value}))
        for _ in range(3):
            schedule.step(*step)

    def restore(change):
        schedule = kind(nn.optim.SGD([vtl.ones(2)], lr=0.1, momentum=0.9), **SCHEDULES[name])
        schedule.load_state_dict(change(schedule.state_dict()))

    for value in WRONG.values():
        for option in options_of(kind, SCHEDULES[name]):
            only_ours(lambda option=option, value=value: use(option, value))
        only_ours(lambda value=value: kind(value, **SCHEDULES[name]))
        only_ours(lambda value=value: restore(lambda state: value))
        only_ours(lambda value=value: restore(lambda state: dict.fromkeys(state, value)))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adagrad", "RMSprop", "Lion", "Muon"])
def test_an_option_of_an_optimizer_works_or_is_refused(name):
    kind = getattr(nn.optim, name)

    def use(options, params=None):
        p = vtl.ones(2, 2, requires_grad=True)
        optimizer, p.grad = kind([p] if params is None else params, **options), vtl.ones(2, 2)
        optimizer.step()
        repr(optimizer)

    for value in WRONG.values():
        for option in options_of(kind, {}):
            if not (
                option == "ns_steps" and isinstance(value, int) and value > 9
            ):  # as many turns are made as are asked for
                only_ours(lambda option=option, value=value: use({option: value}))
        only_ours(lambda value=value: use({}, value))
        only_ours(lambda value=value: use({}, [value]))
