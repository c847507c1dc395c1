"""Rows A7, A8 and A21 of the roadmap: what a session reuses, what it is in force for, and what it leaves alone."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest

import vtl_core as vtl
import vtl_data
import vtl_nn as nn
from vsl_compute import registry

STAGES = ("forward", "activations", "backward", "optimizer")


def test_a21_a_session_and_a_model_from_one_context_share_it(stand_in, environment):
    """A21: attach_session, Sequential.from_context and the training loop."""
    device = stand_in("cuda")
    context = vtl.Context(
        placement=vtl.Placement(forward="cuda", activations="cuda", backward="cuda", optimizer="cuda")
    )
    data = vtl_data.TensorDataset(np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), np.arange(40) % 3)

    def fitted():
        vtl.manual_seed(2)
        model = nn.Sequential.from_context(context).input((6,)).linear(16).relu().linear(3)
        loader = vtl_data.DataLoader(data, batch_size=10, shuffle=True, seed=0)
        history = nn.fit(model, loader, optimizer=nn.optim.Adam(model.parameters(), 0.01), epochs=3, progress=False)
        return model, history.losses

    _, wanted = fitted()
    assert device.launched == []
    with context.attach_session() as session:
        assert context.attach_session() is session
        assert context.session is session
        model, losses = fitted()
        assert model.context is context
        assert {p.device for p in model.parameters()} == {"cpu:0"}
        assert session.transfers().calls_to_device > 0
        assert "update" in device.launched
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    assert context.session is None
    launched = len(device.launched)
    fitted()
    assert len(device.launched) == launched


LAYERS = {
    "linear": (lambda: nn.Linear(7, 5), (6, 7)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), (2, 3, 9, 8)),
}


def numbers(*shape, seed=0):
    return vtl.tensor(np.random.default_rng(seed).normal(size=shape), dtype=vtl.float32)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kept", [False, True])
def test_a07_two_forwards_of_one_shape_allocate_once(staged_on, attach, name, kept):
    """A7: what is asked of the device is counted: the first forward's memory does for all later ones, and results agree."""
    make, shape = LAYERS[name]
    layer = make()
    backend = registry.get(staged_on)
    attach(vtl.Placement(forward=staged_on, activations=staged_on if kept else "cpu"))
    results, reserved = [], [backend.memory().reserved]
    for _ in range(3):
        results.append(layer(numbers(*shape)).numpy().copy())
        backend.synchronize()
        reserved.append(backend.memory().reserved)

    assert reserved[1] == reserved[2] == reserved[3]
    if staged_on.startswith("stand_in"):  # a device may have had room for it before
        assert reserved[1] > reserved[0]
    for later in results[1:]:
        np.testing.assert_allclose(later, results[0], rtol=1e-9, atol=1e-9)


def test_a08_a_larger_shape_grows_the_memory_and_stays_right(staged_on, attach):
    """A8: larger, smaller and again larger; the largest that there was does for all that come after it."""
    layer = nn.Conv2d(3, 4, 3, padding=1)
    inputs = [numbers(n, 3, s, s, seed=n) for n, s in ((2, 8), (5, 19), (1, 4), (7, 19), (2, 8))]
    wanted = [layer(x) for x in inputs]
    attach(vtl.Placement(forward=staged_on, activations=staged_on))
    backend, reserved = registry.get(staged_on), []

    for _ in range(2):
        for x, y in zip(inputs, wanted, strict=True):
            np.testing.assert_allclose(layer(vtl.tensor(x.numpy())).numpy(), y.numpy(), rtol=1e-5, atol=1e-5)
        backend.synchronize()
        reserved.append(backend.memory().reserved)
    assert reserved[0] == reserved[1]


def test_sessions_close_in_the_order_they_were_attached(stand_in):
    stand_in("cuda")
    outer = vtl.Context(placement=vtl.Placement(forward="cuda")).attach_session()
    inner = vtl.Context("cpu").attach_session()  # stages nothing, and stands before the other
    with pytest.raises(vtl.GraphError, match="attached later"):
        outer.close()
    x = vtl.ones(2, 2)
    vtl.apply("relu", x)
    assert outer.transfers().calls_to_device == 0
    inner.close()
    inner.close()
    vtl.apply("relu", x)
    assert outer.transfers().calls_to_device == 1
    outer.close()


def test_what_is_on_the_device_can_be_read_after_the_session(stand_in):
    stand_in("cuda")
    with vtl.Context(placement=vtl.Placement(forward="cuda", activations="cuda")).attach_session():
        y = vtl.apply("relu", vtl.tensor([[-1.0, 2.0]]))
    assert y.tolist() == [[0, 2]]
    assert (y + 1).tolist() == [[1, 3]]


def test_tensors_on_a_device_of_their_own_are_not_staged(stand_in):
    device, other = stand_in("cuda"), stand_in("opencl")
    with vtl.Context(placement=vtl.Placement(forward="cuda", backward="cuda", optimizer="cuda")).attach_session():
        layer = nn.Linear(3, 2).to("opencl")
        stepper = nn.optim.Adam(layer.parameters())
        y = layer(vtl.ones(4, 3, device="opencl"))
        y.sum().backward()
        stepper.step()
    assert y.device == "opencl:0"
    assert device.launched == []
    assert "gemm" in other.launched


def test_what_the_device_cannot_do_names_the_switch(stand_in, environment, monkeypatch):
    device = stand_in("cuda")
    monkeypatch.setattr(device, "supports_row", lambda row, dtype: dtype is not vtl.float64)
    environment(VTL_USE_CUDA="1")
    with (
        vtl.Context().attach_session(),
        pytest.raises(vtl.UnsupportedError, match=r"relu: VTL_USE_CUDA=1 runs it on cuda:0, which cannot.*on the CPU"),
    ):
        vtl.apply("relu", vtl.ones(2, dtype=vtl.float64))


def test_an_index_out_of_range_is_named_when_the_result_is_read(staged_on, attach):
    attach(vtl.Placement(forward=staged_on, activations=staged_on))
    with pytest.raises(vtl.IndexRangeError):
        nn.functional.embedding(vtl.tensor([0, 7]), vtl.ones(3, 2)).numpy()


@pytest.mark.parametrize("linked", [False, True])
def test_derivatives_of_any_order_agree(staged_on, attach, linked):
    """create_graph runs the backward stage over tensors; checkpoints run the forward stage again."""
    results = []
    for stages in (
        {},
        dict.fromkeys(STAGES, staged_on),
        {"forward": staged_on},
        {"forward": staged_on, "backward": staged_on},
    ):
        session = attach(vtl.Placement(**stages))
        generator = np.random.default_rng(0)
        x, w = (vtl.tensor(generator.normal(size=s), requires_grad=True) for s in ((4, 3), (2, 3)))

        def function(x=x, w=w):
            return vtl.checkpoint(lambda a: nn.functional.linear(a, w).tanh().square(), x).sum()

        if linked:
            (first,) = vtl.grad(nn.functional.linear(x, w).tanh().square().sum(), [x], create_graph=True)
            first.square().sum().backward()
        else:
            function().backward()
        results.append((x.grad.numpy().copy(), w.grad.numpy().copy()))
        session.close()
    for got in results[1:]:
        for a, b in zip(got, results[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)


DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool")


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_every_dtype_and_layout_come_down(staged_on, attach, dtype):
    """Results that are on the device only: read whole, in part, transposed, by NumPy and by the host's ops."""
    x = vtl.tensor(np.arange(24).reshape(2, 3, 4) % 5, dtype=dtype)
    attach(vtl.Placement(forward=staged_on, activations=staged_on))

    def made():
        return vtl.apply("copy", x.permute(0, 2, 1))

    wanted = x.numpy().transpose(0, 2, 1)
    np.testing.assert_array_equal(made().numpy(), wanted)
    np.testing.assert_array_equal(made()[1:, ::2].numpy(), wanted[1:, ::2])
    np.testing.assert_array_equal(made().permute(2, 0, 1).numpy(), wanted.transpose(2, 0, 1))
    y = made()
    with vtl.no_grad():
        y[0] = x.permute(0, 2, 1)[1]
    assert y.tolist() == [wanted[1].tolist()] * 2
    assert vtl.apply("copy", y).tolist() == y.tolist()
    assert vtl.apply("copy", x[:, 1]).tolist() == x.numpy()[:, 1].tolist()
    assert vtl.apply("copy", x[0, 0, 0]).item() == x.numpy()[0, 0, 0]


def test_memory_is_flat_over_many_steps(staged_on, attach):
    """Copies go with what they are copies of: neither side grows."""
    backend, host = registry.get(staged_on), registry.get("cpu")
    attach(vtl.Placement(**dict.fromkeys(STAGES, staged_on)))
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    stepper = nn.optim.Adam(model.parameters())
    held = []
    gc.collect()  # what other tests left in circles would go at some step of this one's, and the host counts what is alive
    for step in range(60):
        x, labels = vtl.tensor(np.full((8, 6), step, np.float32)), vtl.tensor(np.arange(8) % 3)
        stepper.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        stepper.step()
        backend.synchronize()
        held.append((backend.memory().buffers, backend.memory().live, host.memory().buffers))
    assert held[10] == held[30] == held[59]


def test_a_model_of_a_context_can_be_copied_under_its_session(stand_in):
    stand_in("cuda")
    context = vtl.Context(placement=vtl.Placement(**dict.fromkeys(STAGES, "cuda")))
    with context.attach_session():
        model = nn.Sequential.from_context(context).input((6,)).linear(4).relu().linear(3)
        stepper = nn.optim.Adam(model.parameters(), 0.1)
        nn.functional.cross_entropy(model(vtl.ones(2, 6)), vtl.tensor([0, 1])).backward()
        other, second = copy.deepcopy((model, stepper))
        stepper.step()
        assert not np.allclose(model[2].bias.numpy(), other[2].bias.numpy())  # no dead relu stands behind it
        second.step()
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            np.testing.assert_array_equal(p.numpy(), q.numpy())
    assert other.context is context


def test_mixed_precision_trains_alike(staged_on, attach):
    """autocast, a GradScaler that skips a step, and clipping by norm: the same losses as on the host."""
    losses = []
    for placement in (vtl.Placement(), vtl.Placement(**dict.fromkeys(STAGES, staged_on))):
        session = attach(placement)
        vtl.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        stepper, scaler = nn.optim.Adam(model.parameters(), 0.01), nn.amp.GradScaler(init_scale=2.0**24)
        x = vtl.tensor(np.random.default_rng(0).normal(size=(12, 6)), dtype=vtl.float32)
        for _ in range(14):
            stepper.zero_grad()
            with nn.amp.autocast(dtype=vtl.float16):
                loss = nn.functional.cross_entropy(model(x), vtl.tensor(np.arange(12) % 3))
            scaler.scale(loss).backward()
            scaler.unscale_(stepper)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(stepper)
            scaler.update()
            losses.append(loss.item())
        losses.append(float(scaler.get_scale()))
        session.close()
    assert losses[14] < 2.0**24
    np.testing.assert_allclose(losses[15:], losses[:15], rtol=2e-3)


def test_gradients_go_through_a_device_of_their_own(stand_in, attach):
    """A tensor moved to another device and back: the way back through the move lands there, staged or not."""
    stand_in("cuda")
    stand_in("opencl")
    results = []
    for stages in ({}, dict.fromkeys(STAGES, "cuda"), {"forward": "cuda", "backward": "cuda"}):
        session = attach(vtl.Placement(**stages))
        x = vtl.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)
        y = (vtl.apply("tanh", x) + 1).to("opencl")
        z = (y * y).to("cpu")
        vtl.apply("sigmoid", z @ z).sum().backward()
        (first,) = vtl.grad(vtl.apply("exp", x).to("opencl").sin().to("cpu").sum(), [x], create_graph=True)
        first.square().sum().backward()
        results.append((y.device, x.grad.numpy().copy()))
        session.close()
    for place, gradient in results:
        assert place == "opencl:0"
        np.testing.assert_allclose(gradient, results[0][1], rtol=1e-5)
