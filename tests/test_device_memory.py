"""Rows A1 to A6, A9 to A17 and A29 of the roadmap: where data lives under each placement, and how many bytes travel, exactly.

Each runs on a stand-in, which every machine has, and on every device that the run was told to use.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

F = nn.functional
COMBINATIONS = list(product((False, True), repeat=3))  # activations, backward, optimizer on the device


@pytest.fixture(autouse=True)
def seeded():
    vtl.manual_seed(0)


def numbers(*shape, seed=0, dtype=vtl.float32, **options):
    return vtl.tensor(np.random.default_rng(seed).normal(size=shape), dtype=dtype, **options)


def placed(spec, activations=True, backward=True, optimizer=True, **more):
    """forward on the device, and the stages that are True."""
    rest = {"activations": activations, "backward": backward, "optimizer": optimizer}
    return vtl.Placement(forward=spec, **{name: spec for name, on in rest.items() if on}, **more)


def moved(session, action):
    """Bytes up and down while `action` runs, and what it gives."""
    before = session.transfers()
    result = action()
    after = session.transfers()
    return (after.bytes_to_device - before.bytes_to_device, after.bytes_to_host - before.bytes_to_host), result


LAYERS = {
    "linear": (lambda dtype=None: nn.Linear(7, 5, dtype=dtype), (6, 7)),
    "conv2d": (lambda dtype=None: nn.Conv2d(3, 4, 3, stride=2, padding=1, dtype=dtype), (2, 3, 9, 8)),
}


@pytest.fixture(params=LAYERS)
def layer_and_shape(request):
    make, shape = LAYERS[request.param]
    return make(), shape


def close(got, wanted, tolerance=1e-5):
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=tolerance, atol=tolerance)


# the byte formulas
@pytest.mark.parametrize(("activations", "backward", "optimizer"), COMBINATIONS)
def test_a17_bytes_of_a_step_are_the_formulas(staged_on, attach, layer_and_shape, activations, backward, optimizer):
    """A17: what goes up and comes down in forward, backward and optimizer, for every combination of switches."""
    (layer, shape), session = layer_and_shape, attach(placed(staged_on, activations, backward, optimizer))
    stepper = nn.optim.Adam(layer.parameters(), lr=0.01)
    parameters = sum(p.nbytes for p in layer.parameters())
    x = numbers(*shape, requires_grad=True)

    (up, down), y = moved(session, lambda: layer(x))
    assert (up, down) == (x.nbytes + parameters, 0 if activations else y.nbytes)

    dy = numbers(*y.shape, seed=1)
    (up, down), _ = moved(session, lambda: y.backward(dy))
    assert up == (dy.nbytes + (0 if activations else x.nbytes) if backward else 0)
    assert down == (parameters if backward and not optimizer else 0)

    (up, down), _ = moved(session, stepper.step)
    assert up == (parameters if optimizer and not backward else 0)
    assert down == (parameters if optimizer else 0)

    (up, down), _ = moved(session, x.grad.numpy)
    assert (up, down) == (0, x.nbytes if backward else 0)
    (up, down), _ = moved(session, lambda: [p.grad.numpy() for p in layer.parameters()])
    assert (up, down) == (0, parameters if backward and optimizer else 0)
    (up, down), _ = moved(session, y.numpy)
    assert (up, down) == (0, y.nbytes if activations else 0)


@pytest.mark.parametrize(("activations", "backward", "optimizer"), COMBINATIONS)
def test_a17_the_second_step_uploads_only_what_changed(
    staged_on, attach, layer_and_shape, activations, backward, optimizer
):
    """A17: parameters are resident until something changes them; slots never travel."""
    (layer, shape), session = layer_and_shape, attach(placed(staged_on, activations, backward, optimizer))
    stepper = nn.optim.Adam(layer.parameters(), lr=0.01)
    parameters = sum(p.nbytes for p in layer.parameters())

    def step(seed):
        y = layer(numbers(*shape, seed=seed))
        stepper.zero_grad()
        y.backward(numbers(*y.shape, seed=seed + 100))
        stepper.step()
        return y

    step(1)
    (up, down), y = moved(session, lambda: step(2))
    x = numbers(*shape).nbytes
    assert up == (x + (0 if optimizer else parameters) + (backward and y.nbytes + (0 if activations else x))
                  + (parameters if optimizer and not backward else 0))  # fmt: skip
    assert down == (0 if activations else y.nbytes) + (parameters if backward or optimizer else 0)


def test_a17_bytes_of_a_step_under_the_switch_of_vulkan_or_opencl_are_its_row(staged_on, attach, layer_and_shape):
    """A17: forward, backward and optimizer there, nothing kept: y and dx come down, dW and db only when the host reads them."""
    layer, shape = layer_and_shape
    session = attach(placed(staged_on, activations=False, gradients="cpu"))
    stepper = nn.optim.Adam(layer.parameters(), lr=0.01)
    parameters = sum(p.nbytes for p in layer.parameters())
    for step in range(2):
        x = numbers(*shape, seed=step, requires_grad=True)
        stepper.zero_grad()
        (up, down), y = moved(session, lambda x=x: layer(x))
        assert (up, down) == (x.nbytes + (0 if step else parameters), y.nbytes)
        dy = numbers(*y.shape, seed=9)
        (up, down), _ = moved(session, lambda y=y, dy=dy: y.backward(dy))
        assert (up, down) == (dy.nbytes + x.nbytes, x.nbytes)
        (up, down), _ = moved(session, stepper.step)
        assert (up, down) == (0, parameters)
    (up, down), _ = moved(session, lambda: [p.grad.numpy() for p in layer.parameters()])
    assert (up, down) == (0, parameters)
    (up, down), _ = moved(session, lambda: (x.grad.numpy(), y.numpy()))
    assert (up, down) == (0, 0)


def test_a17_nothing_travels_without_a_placement(stand_in, layer_and_shape):
    layer, shape = layer_and_shape
    device = stand_in("cuda")
    stepper = nn.optim.Adam(layer.parameters())
    layer(numbers(*shape)).sum().backward()
    stepper.step()

    assert device.launched == []


def test_a17_inputs_that_stay_the_same_travel_again_unless_activations_are_kept(staged_on, attach, layer_and_shape):
    layer, shape = layer_and_shape
    x = numbers(*shape)
    for kept in (False, True):
        session = attach(placed(staged_on, kept))
        layer(x)
        (up, _), _ = moved(session, lambda: layer(x))
        assert up == (0 if kept else x.nbytes)


def test_gradients_that_are_not_kept_come_down(staged_on, attach):
    """As VTL_USE_VULKAN and VTL_USE_OPENCL have it: y and dx come down, and go up again where they are read."""
    first, last = nn.Linear(7, 6), nn.Linear(6, 3)
    session = attach(placed(staged_on, activations=False, gradients="cpu"))
    x = numbers(4, 7)
    weights = sum(p.nbytes for p in (*first.parameters(), *last.parameters()))

    (up, down), (h, y) = moved(session, lambda: (h := first(x), last(h)))
    assert (up, down) == (x.nbytes + h.nbytes + weights, h.nbytes + y.nbytes)
    dy = numbers(4, 3)
    (up, down), _ = moved(session, lambda: y.backward(dy))
    assert (up, down) == (
        dy.nbytes + h.nbytes + h.nbytes + x.nbytes,
        h.nbytes,
    )  # dy and h of the last; dh and x of the first


# A1 to A6
def test_a01_parameters_stay_on_the_host_and_equal_the_device_s(staged_on, attach, tmp_path):
    """A1, A6: after a step on the device the host's weights are the device's; saving asks no device."""
    layer = nn.Linear(7, 5)
    session = attach(placed(staged_on))
    stepper = nn.optim.Adam(layer.parameters(), lr=0.1)
    x = numbers(4, 7)
    for _ in range(3):
        stepper.zero_grad()
        layer(x).square().sum().backward()
        stepper.step()
    (up, down), _ = moved(session, lambda: nn.save(layer, tmp_path / "w"))
    assert (up, down) == (0, 0)
    assert {p.device for p in layer.parameters()} == {"cpu:0"}
    read = vtl.eye(7)  # what a Linear makes of it is its own weights
    (up, _), there = moved(session, lambda: layer(read))
    assert up == read.nbytes  # made by what the step left on the device: no weight went up again
    session.close()

    np.testing.assert_array_equal(there.numpy(), (layer.weight.numpy().T + layer.bias.numpy()))
    np.testing.assert_array_equal(nn.load(tmp_path / "w")["weight"].numpy(), layer.weight.numpy())


def test_a02_forward_agrees_with_the_switch_on(staged_on, attach, layer_and_shape):
    """A2."""
    layer, shape = layer_and_shape
    x = numbers(*shape)
    wanted = layer(x)
    attach(placed(staged_on, activations=False, backward=False, optimizer=False))

    close(layer(x), wanted)


def test_a03_results_are_tensors_of_the_host(staged_on, attach, layer_and_shape):
    """A3: dtype, shape and residency are those of the CPU path, whatever is kept on the device."""
    layer, shape = layer_and_shape
    wanted = layer(numbers(*shape))
    for kept in (False, True):
        session = attach(placed(staged_on, kept))
        y = layer(numbers(*shape))
        session.close()

        assert (y.device, y.shape, y.dtype, type(y)) == ("cpu:0", wanted.shape, wanted.dtype, vtl.Tensor)
        assert isinstance(y.numpy(), np.ndarray)
        close(y, wanted)


@pytest.mark.parametrize("kept", [False, True])
def test_a04_a05_backward_and_optimizer_are_the_host_s_by_default(stand_in, attach, layer_and_shape, kept):
    """A4, A5: with the forward stage alone, no kernel of the device runs in backward or in a step."""
    layer, shape = layer_and_shape
    device = stand_in("cuda")
    attach(placed("cuda", kept, backward=False, optimizer=False))
    stepper = nn.optim.Adam(layer.parameters())
    y = layer(numbers(*shape, requires_grad=True))
    forward = [*device.launched]
    y.backward(numbers(*y.shape))
    stepper.step()

    assert "gemm" in forward
    assert device.launched == forward


# A9, A10: chains
def test_a09_a_chain_uploads_no_activation(staged_on, attach):
    """A9: Linear to Linear at batch > 1, biases included; what lies between never leaves the device."""
    first, last = nn.Linear(7, 6), nn.Linear(6, 3)
    x = numbers(5, 7)
    wanted = last(first(x))
    session = attach(placed(staged_on))
    (up, down), y = moved(session, lambda: last(first(x)))

    assert (up, down) == (x.nbytes + sum(p.nbytes for p in (*first.parameters(), *last.parameters())), 0)
    close(y, wanted)
    assert not np.allclose(first.bias.numpy(), 0)


def test_a09_shapes_operators_and_flatten_do_not_break_a_chain(staged_on, attach):
    """A27: views, arithmetic and reductions of what is on the device stay there."""
    layer, last = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)
    x = numbers(5, 3, 6, 6)

    def forward():
        h = layer(x)
        h = F.max_pool2d(h * 2 + h.sigmoid(), 2).flatten(1).reshape(5, 4, 4)
        return last(h.permute(0, 2, 1).mean(1)[1:])

    wanted = forward()
    session = attach(placed(staged_on))
    (up, down), y = moved(session, forward)

    assert (up, down) == (x.nbytes + sum(p.nbytes for p in (*layer.parameters(), *last.parameters())), 0)
    close(y, wanted)


def test_a10_a_host_op_in_between_and_a_new_batch_clear_the_chain(staged_on, attach):
    """A10: what the host changes is uploaded again; a new batch is not taken for the old."""
    first, last = nn.Linear(7, 6), nn.Linear(6, 3)
    plain = [numbers(5, 7, seed=s) for s in range(3)]

    def forward(x):
        with vtl.no_grad():
            h = first(x)
            h[0] = 1.5
            return last(h)

    wanted = [forward(x) for x in plain]
    session = attach(placed(staged_on))
    for x, y in zip(plain, wanted, strict=True):
        (up, down), got = moved(session, lambda x=x: forward(x))
        close(got, y)
    h = 5 * 6 * 4
    assert (up, down) == (plain[0].nbytes + h, h)


# A11 to A13, A29: backward
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kept", [False, True])
def test_a11_a12_gradients_of_layers_agree(staged_on, attach, name, dtype, kept):
    """A11 (Linear, 1e-6), A12 (Conv2d, with stride and padding; 1e-4): input, weight and bias."""
    make, shape = LAYERS[name]
    layer, dy = make(dtype), None
    gradients = []
    for placement in (vtl.Placement(), placed(staged_on, kept, optimizer=False)):
        session = attach(placement)
        x = numbers(*shape, dtype=dtype, requires_grad=True)
        y = layer(x)
        dy = numbers(*y.shape, seed=4, dtype=dtype)
        layer.zero_grad()
        y.backward(dy)
        gradients.append([x.grad.numpy().copy(), *(p.grad.numpy().copy() for p in layer.parameters())])
        session.close()
    tolerance = 1e-12 if dtype == "float64" else {"linear": 1e-6, "conv2d": 1e-5}[name]
    for wanted, got in zip(*gradients, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize(
    "options",
    [{"groups": 3}, {"dilation": 2}, {"stride": (3, 1)}, {"padding": (0, 2)}, {"kernel_size": (1, 5)}, {"bias": False}],
    ids=str,
)
def test_a12_every_convolution_is_right(staged_on, attach, options):
    """A12: shapes that a fast path may not take are right too."""
    layer = nn.Conv2d(3, 6, **{"kernel_size": 3, **options})
    results = []
    for placement in (vtl.Placement(), placed(staged_on)):
        session = attach(placement)
        x = numbers(2, 3, 9, 9, requires_grad=True)
        layer.zero_grad()
        layer(x).square().sum().backward()
        results.append([x.grad.numpy().copy(), *(p.grad.numpy().copy() for p in layer.parameters())])
        session.close()
    for wanted, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_a13_backward_of_dropout(staged_on, attach):
    """A13: the gradient is upstream * mask / keep, to 1e-12."""
    session = attach(placed(staged_on))
    x, upstream = numbers(40, 33, dtype=vtl.float64, requires_grad=True), numbers(40, 33, seed=1, dtype=vtl.float64)
    y = F.dropout(x, 0.3)
    (up, down), _ = moved(session, lambda: y.backward(upstream))
    assert (up, down) == (upstream.nbytes, 0)  # the mask is there, and the gradient stays there
    mask = y.numpy() != 0

    assert 0.6 < mask.mean() < 0.8
    np.testing.assert_allclose(x.grad.numpy(), upstream.numpy() * mask / 0.7, rtol=1e-12)


@pytest.mark.parametrize("make", [nn.ReLU, nn.Sigmoid, nn.Tanh], ids=["relu", "sigmoid", "tanh"])
def test_a29_activation_layers_use_the_device(staged_on, attach, make):
    """A29: forward and backward of an activation are ops of the device when its stage is there."""
    layer, x = make(), numbers(6, 5, requires_grad=True)
    layer(x).backward(dy := numbers(6, 5, seed=1))
    wanted, gradient = layer(x), x.grad
    x.grad = None
    session = attach(placed(staged_on, activations=False))
    (up, down), y = moved(session, lambda: layer(x))
    assert (up, down) == (x.nbytes, y.nbytes)
    (up, down), _ = moved(session, lambda: y.backward(dy))

    assert (up, down) == (dy.nbytes + (0 if make is nn.ReLU else y.nbytes), 0)  # x is still there; the gradient stays
    close(y, wanted)
    close(x.grad, gradient)


def test_b23_convolution_and_adam_of_the_layer_library_need_no_change(staged_on, attach):
    """B23, D35: a model of vtl_nn, its loss and its optimizer run staged as they are, and learn the same."""
    losses = []
    for placement in (vtl.Placement(), placed(staged_on)):
        vtl.manual_seed(5)
        session = attach(placement)
        model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5))
        stepper = nn.optim.Adam(model.parameters(), lr=0.01)
        x, labels = numbers(9, 3, 8, 8, seed=2), vtl.tensor(np.arange(9) % 5)
        for _ in range(8):
            stepper.zero_grad()
            (loss := F.cross_entropy(model(x), labels)).backward()
            stepper.step()
            losses.append(loss.item())
        session.close()

    np.testing.assert_allclose(losses[8:], losses[:8], rtol=1e-4)
    assert losses[7] < 0.7 * losses[0]


def test_d35_matrix_products_of_autograd_run_on_the_device(staged_on, attach):
    """D35: `@` is a matrix product of the forward stage, and its gradients of the backward stage."""
    x, w = numbers(5, 4), numbers(4, 3, seed=1, requires_grad=True)
    session = attach(placed(staged_on, activations=False, optimizer=False))
    (up, down), y = moved(session, lambda: x @ w)
    assert (up, down) == (x.nbytes + w.nbytes, y.nbytes)
    dy = numbers(5, 3, seed=2)
    (up, down), _ = moved(session, lambda: y.backward(dy))

    assert (up, down) == (dy.nbytes + x.nbytes, w.nbytes)
    np.testing.assert_allclose(w.grad.numpy(), x.numpy().T @ dy.numpy(), rtol=1e-5)
