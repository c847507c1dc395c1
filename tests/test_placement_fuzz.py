"""Random programs under random placements give what the CPU gives: ops, views, edits, reads, backward passes and steps."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl
import vtl_nn as nn
from vtl_core.session import Session
from vtl_core.staging import Mirrors

F = nn.functional


class Program:
    """A random training program, the same for the same seed; `play` runs it and gives every number that it read."""

    def __init__(self, seed):
        self.seed = seed

    def play(self):
        self.random = np.random.default_rng(self.seed)
        vtl.manual_seed(self.seed)
        self.model = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2), nn.Flatten(), nn.Linear(16, 6)
        ).to(vtl.float64)  # fmt: skip
        self.scale = vtl.tensor(self.random.normal(size=6), requires_grad=True)
        self.stepper = nn.optim.Adam([{"params": self.model.parameters()}, {"params": [self.scale], "lr": 0.1}], 0.01)
        self.seen = []
        for _ in range(4):
            getattr(self, self.random.choice(["step", "step", "accumulate", "evaluate"]))()
            getattr(self, self.random.choice(["edit", "load", "read", "nothing", "clip"]))()
        self.seen += [p.numpy().copy() for p in self.model.parameters()]
        self.seen += [b.numpy().copy() for b in self.model.buffers()]
        self.seen += [slot.numpy().copy() for slots in self.stepper.state.values() for slot in slots.values()]
        return self.seen

    def loss(self):
        x = vtl.tensor(self.random.normal(size=(5, 2, 6, 6)))
        if self.random.random() < 0.5:
            x = x.permute(0, 1, 3, 2)[1:]
        h = self.model(x)
        for _ in range(self.random.integers(0, 5)):
            h = self.changed(h)
        if self.random.random() < 0.5:
            return F.cross_entropy(h, vtl.tensor(self.random.integers(0, h.shape[1], h.shape[0])))
        return (h * 0.5 + 1).square().mean()

    def changed(self, h):
        kind = self.random.integers(0, 9)
        if kind == 0:
            return h * self.scale[: h.shape[1]]
        if kind == 1:
            return vtl.concat([h, h.sigmoid()[:1]], axis=0)
        if kind == 2:
            return h + h.detach().mean(0, keepdim=True)
        if kind == 3:
            self.seen.append(h.numpy().copy())
            return F.gelu(h)
        if kind == 4:
            return h[::2] if h.shape[0] > 3 else h.clone()
        if kind == 5:
            with vtl.no_grad():
                noise = F.relu(h)
                noise[0] = 0.25
                noise += 1
            return h + noise
        if kind == 6:
            return F.layer_norm(h, h.shape[1:])
        if kind == 7:
            return vtl.checkpoint(lambda a: F.tanh(a) * 2, h)
        return h.reshape(h.shape[1], -1).transpose(0, 1) @ vtl.tensor(self.random.normal(size=(h.shape[1], 6)))

    def step(self):
        self.stepper.zero_grad()
        loss = self.loss()
        loss.backward()
        self.stepper.step()
        self.seen.append(np.array(loss.item()))

    def accumulate(self):
        for _ in range(2):
            self.loss().backward()
        self.stepper.step()

    def evaluate(self):
        self.model.eval()
        with vtl.no_grad():
            self.seen.append(np.array(self.loss().item()))
        self.model.train()

    def edit(self):
        with vtl.no_grad():
            self.model[0].weight.mul_(0.9)
            self.model[-1].bias[1] = 0.5
            self.scale.copy_(self.scale * 2)

    def load(self):
        state = {name: value.numpy() * 0.95 for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(state)
        self.stepper.load_state_dict(self.stepper.state_dict())

    def read(self):
        self.seen += [p.grad.numpy().copy() for p in self.model.parameters() if p.grad is not None]

    def clip(self):
        if self.scale.grad is not None or self.model[0].weight.grad is not None:
            nn.utils.clip_grad_norm_(list(self.model.parameters()), 0.5)
            self.stepper.step()

    def nothing(self):
        pass


@pytest.mark.parametrize("seed", range(24))
def test_a_random_program_gives_what_the_cpu_gives(staged_on, attach, seed):
    """Eight kinds of placement, three programs each; float64 to 1e-9."""
    stages = {name: staged_on for i, name in enumerate(("activations", "backward", "optimizer")) if seed >> i & 1}
    gradients = {"gradients": "cpu"} if seed >= 16 else {}
    wanted = Program(seed).play()
    session = attach(vtl.Placement(forward=staged_on, **stages, **gradients))
    got = Program(seed).play()

    assert session.transfers().bytes_to_device > 0
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def stale(self, buffer):
    """A copy is good for ever."""
    return self._known.get(buffer)


def doubled(self, grad, g):
    """What was there counts twice."""
    grad.raw = self.run("add", self.run("add", grad.raw, g), grad.raw)


@pytest.mark.parametrize(("owner", "name", "broken"), [(Mirrors, "_mirror", stale), (Session, "accumulate", doubled)])
def test_these_programs_notice_what_is_broken(stand_in, attach, monkeypatch, owner, name, broken):
    stand_in("cuda")
    monkeypatch.setattr(owner, name, broken)
    wrong = 0
    for seed in range(8):
        wanted = Program(seed).play()
        with vtl.Context(placement=vtl.Placement("cpu", *("cuda",) * 4)).attach_session():
            got = Program(seed).play()
        wrong += any(not np.allclose(a, b, rtol=1e-9, atol=1e-11) for a, b in zip(got, wanted, strict=True))
    assert wrong > 2
