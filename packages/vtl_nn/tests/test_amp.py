"""Mixed precision: a model under autocast, and the scaler that skips, backs off and grows."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn

OPTIMIZERS = {
    "SGD": lambda p: nn.optim.SGD(p, 0.1),
    "SGD momentum": lambda p: nn.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: nn.optim.Adam(p, 0.1),
    "AdamW": lambda p: nn.optim.AdamW(p, 0.1),
}


def model():
    vtl.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.LayerNorm(8),
        nn.Linear(8, 3),
    )


def batch(device):
    random = np.random.default_rng(0)
    images = vtl.tensor(random.normal(size=(6, 2, 6, 6)), dtype=vtl.float32, device=device)
    return images, vtl.tensor(random.integers(0, 3, 6), device=device)


def test_a_step_of_mixed_precision_is_near_the_wide_one(device):
    """Losses agree to a few float16 roundings over five steps, and everything that is kept is float32."""
    losses = {}
    for narrow in (False, True):
        net = model().to(device)
        optimizer, scaler = nn.optim.AdamW(net.parameters(), 0.01), nn.amp.GradScaler(enabled=narrow)
        images, labels = batch(device)
        for _ in range(5):
            with nn.amp.autocast(dtype=vtl.float16, enabled=narrow):
                y = net(images)
                loss = nn.functional.cross_entropy(y, labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.setdefault(narrow, []).append(loss.item())
        assert y.dtype is (vtl.float16 if narrow else vtl.float32)
        assert {p.dtype for p in net.parameters()} == {p.grad.dtype for p in net.parameters()} == {vtl.float32}
    np.testing.assert_allclose(losses[True], losses[False], rtol=5e-3)
    assert losses[True][-1] < losses[True][0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_scaled_step_is_the_plain_one_and_a_bad_one_is_none(device, name):
    steps = {}
    for scaled in (True, False):
        p = vtl.tensor([0.5, -0.25, 3.0], device=device, requires_grad=True)
        optimizer, scaler = OPTIMIZERS[name]([p]), nn.amp.GradScaler(init_scale=256.0)
        for k, g in enumerate(([1.0, -2.0, 0.5], [np.inf, 0.0, 1.0], [0.25, np.nan, 1.0], [0.75, 0.125, -1.0])):
            if scaled:
                p.grad = vtl.tensor([0.0, 0.0, 0.0], device=device)
                p.grad.copy_(vtl.tensor(np.array(g, np.float32) * np.float32(scaler.get_scale()), device=device))
                if k == 0:
                    scaler.scale(vtl.ones((), device=device))
                scaler.step(optimizer)
                scaler.update()
            elif np.isfinite(g).all():
                p.grad = vtl.tensor(g, dtype=vtl.float32, device=device)
                optimizer.step()
        steps[scaled] = [p.numpy().copy(), *[slot.numpy() for slot in optimizer.state[id(p)].values()]]
        if scaled:
            assert scaler.get_scale() == 64
    for got, expected in zip(steps[True], steps[False], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7)


def test_unscaled_gradients_can_be_clipped(device):
    p = vtl.tensor([3.0, 4.0], device=device, requires_grad=True)
    optimizer, scaler = nn.optim.SGD([p], 1.0), nn.amp.GradScaler(init_scale=1024.0)
    scaler.scale((p * p / 2).sum()).backward()
    scaler.unscale_(optimizer)
    assert p.grad.tolist() == [3, 4]
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == 5
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_allclose(p.numpy(), [2.4, 3.2], rtol=1e-5)


def test_an_infinity_in_one_parameter_holds_back_all(device):
    a, b = (vtl.ones(3, device=device, requires_grad=True) for _ in range(2))
    optimizer, scaler = nn.optim.Adam([{"params": [a]}, {"params": [b], "lr": 0.5}]), nn.amp.GradScaler()
    scaler.scale(a.sum() + b.sum()).backward()
    b.grad.fill_(np.inf)
    scaler.step(optimizer)
    scaler.update()
    assert a.tolist() == b.tolist() == [1, 1, 1]
    assert scaler.get_scale() == 2.0**15


def test_a_step_reads_nothing_from_the_device(device, moved):
    """The host learns of no infinity: transfers are counted where memory is copied."""
    p = vtl.ones(5, device=device, requires_grad=True)
    optimizer, scaler = nn.optim.Adam([p]), nn.amp.GradScaler()
    for _ in range(2):
        scaler.scale(p.sum()).backward()
        before = moved(p)
        scaler.step(optimizer)
        scaler.update()
        after = moved(p)
    assert after == before


def test_state_has_pytorchs_names_and_comes_back():
    p = vtl.ones(2, requires_grad=True)
    optimizer, scaler = nn.optim.SGD([p], 0.1), nn.amp.GradScaler(init_scale=8.0, growth_interval=3)
    for _ in range(2):
        scaler.scale(p.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    state = scaler.state_dict()
    assert state == {
        "scale": 8.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 3,
        "_growth_tracker": 2,
    }
    other = nn.amp.GradScaler()
    other.load_state_dict(state)
    other.scale(p.sum()).backward()
    other.step(optimizer)
    other.update()
    assert other.get_scale() == 16
    other.update(new_scale=4.0)
    assert other.get_scale() == 4
    with pytest.raises(nn.StateError, match="the state has no _growth_tracker"):
        other.load_state_dict({"scale": 1.0})


def test_a_loaded_state_goes_where_the_next_loss_is(device):
    """A file knows no device: scale and growth count are made beside the first loss, and saved again before it."""
    state = nn.amp.GradScaler(init_scale=8.0, growth_interval=2).state_dict() | {"_growth_tracker": 1}
    scaler, p = nn.amp.GradScaler(), vtl.ones(2, device=device, requires_grad=True)
    scaler.load_state_dict(state)
    assert scaler.state_dict() == state
    scaler.scale(p.sum()).backward()
    scaler.step(nn.optim.SGD([p], 0.5))
    scaler.update()
    assert (scaler.get_scale(), p.tolist()) == (16, [0.5, 0.5])


def test_misuse_is_named():
    p = vtl.ones(2, requires_grad=True)
    optimizer, scaler = nn.optim.SGD([p], 0.1), nn.amp.GradScaler()
    with pytest.raises(vtl.AttributeValueError, match="call step first"):
        scaler.update()
    with pytest.raises(vtl.AttributeValueError, match="no parameter of SGD has a gradient; call backward first"):
        scaler.step(optimizer)
    scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(vtl.AttributeValueError, match="it was called before"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(vtl.AttributeValueError, match="it was called before, since the last update; call update"):
        scaler.step(optimizer)
    with pytest.raises(vtl.AttributeValueError, match="backoff_factor=1 between 0 and 1"):
        nn.amp.GradScaler(backoff_factor=1)


def test_a_disabled_scaler_does_nothing():
    p = vtl.ones(2, requires_grad=True)
    optimizer, scaler = nn.optim.SGD([p], 0.5), nn.amp.GradScaler(enabled=False)
    scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.5, 0.5]
    assert (scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (1.0, {}, False)


def test_losses_in_lists_are_scaled_alike():
    scaler = nn.amp.GradScaler(init_scale=4.0)
    one, (two, three) = scaler.scale([vtl.ones(()), (vtl.ones(()), vtl.full((), 2.0))])
    assert [t.item() for t in (one, two, three)] == [4, 4, 8]
    with pytest.raises(vtl.AttributeValueError, match="float is no tensor"):
        scaler.scale(1.0)


@pytest.mark.parametrize("make", [nn.optim.SGD, nn.optim.Adam, nn.optim.Lion, nn.optim.Muon])
def test_a_scaler_steps_parameters_of_several_precisions(make):
    """One group of float32 and float64: each steps as it does without a scaler."""
    dtypes = (vtl.float32, vtl.float64, vtl.float32)
    ends = []
    for scaled in (False, True):
        p = [vtl.ones(2, 3, dtype=dtype, requires_grad=True) for dtype in dtypes]
        optimizer, scaler = make(p, lr=0.1), nn.amp.GradScaler(init_scale=2.0, enabled=scaled)
        scaler.scale(sum((k + 1) * x.float().square().sum() for k, x in enumerate(p))).backward()
        scaler.step(optimizer)
        scaler.update()
        ends.append([x.numpy() for x in p])
    for plain, scaled in zip(*ends, strict=True):
        np.testing.assert_allclose(scaled, plain, rtol=1e-6)
        assert (scaled != 1).all()


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan, 1e39, "8", None])
def test_a_scale_that_is_no_positive_number_is_refused(value):
    scaler = nn.amp.GradScaler()
    scaler.scale(vtl.ones(()))
    with pytest.raises(vtl.AttributeValueError, match="above 0"):
        nn.amp.GradScaler(init_scale=value)
    with pytest.raises(vtl.AttributeValueError, match="above 0"):
        scaler.update("none" if value is None else value)
    with pytest.raises(nn.StateError, match="above 0"):
        scaler.load_state_dict({**scaler.state_dict(), "scale": value})
    assert scaler.get_scale() == 2.0**16


@pytest.mark.parametrize(
    ("name", "value"),
    [("growth_factor", 0.5), ("growth_factor", "2"), ("backoff_factor", 2), ("growth_interval", 0),
     ("_growth_tracker", -1), ("_growth_tracker", "z")],
)  # fmt: skip
def test_a_state_is_held_to_what_the_constructor_asks_for(name, value):
    scaler = nn.amp.GradScaler()
    before = scaler.state_dict()

    with pytest.raises(nn.StateError, match=f"{name}="):
        scaler.load_state_dict({**before, name: value})

    assert scaler.state_dict() == before


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layer", [nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d])
def test_every_convolution_under_autocast_gives_what_it_computed_in(device, layer, bias):
    """A float32 bias does not widen it again, and receives a float32 gradient."""
    made = layer(2, 3, 3, bias=bias, device=device)
    x = vtl.ones(2, 2, *[5] * made.axes, device=device)
    with nn.amp.autocast(dtype=vtl.bfloat16):
        y = made(x)
    y.to(vtl.float32).sum().backward()

    assert y.dtype is vtl.bfloat16
    assert {p.grad.dtype for p in made.parameters()} == {vtl.float32}
