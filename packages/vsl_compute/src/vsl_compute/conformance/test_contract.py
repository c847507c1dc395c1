"""The contract itself: interface version, method signatures, what is declared, and that a Driver tells the truth."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest

from vsl_compute import registry
from vsl_compute.backend import BACKEND_INTERFACE, Capabilities, ComputeBackend, DeviceInfo, Memory, Transfers
from vsl_compute.conformance.unsupported import declared, kept
from vsl_compute.dtypes import ALL, BY_NAME, DType, bool_
from vsl_compute.errors import UnavailableError, UnsupportedError
from vsl_compute.ops.table import OPS, find
from vsl_compute.rows.functions import FUNCTIONS
from vsl_compute.rows.row import Reduction, Row
from vsl_compute.validation.cases import scalars_of
from vsl_compute.view import Layout

CONTRACT = {
    name: member
    for name, member in vars(ComputeBackend).items()
    if inspect.isfunction(member) and not name.startswith("_")
}


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_method_has_the_contract_s_parameters(subject, name):
    """Same names, kinds and defaults; a backend may add parameters that have a default."""
    wanted = list(inspect.signature(CONTRACT[name]).parameters.values())
    found = list(inspect.signature(getattr(type(subject.backend), name)).parameters.values())
    assert [(p.name, p.kind, p.default) for p in found[: len(wanted)]] == [(p.name, p.kind, p.default) for p in wanted]
    assert all(p.default is not p.empty for p in found[len(wanted) :])


def test_interface_version_is_one_this_package_speaks(subject):
    major, minor = subject.backend.interface
    assert major == BACKEND_INTERFACE[0]
    assert minor <= BACKEND_INTERFACE[1]


def test_backend_names_itself_as_its_driver_does(subject):
    backend = subject.backend
    infos = registry.driver(backend.name).devices()
    assert backend.spec == f"{backend.name}:{backend.index}"
    assert backend.spec in [info.spec for info in infos]
    assert [info.index for info in infos] == list(range(len(infos)))
    assert isinstance(backend.info, DeviceInfo)
    assert backend.info.spec == backend.spec
    assert backend.info.kind in ("cpu", "discrete", "integrated", "software")
    assert set(backend.info.dtypes) == {dtype.name for dtype in backend.capabilities.functions}
    assert backend.info.memory_bytes >= 0
    assert all(
        isinstance(getattr(backend.info, field.name), str) for field in fields(DeviceInfo) if field.type == "str"
    )
    with pytest.raises(UnavailableError, match=backend.name):
        registry.driver(backend.name).open(len(infos))


def test_one_instance_a_device(subject):
    assert registry.get(subject.backend.spec) is registry.get(subject.backend.spec)
    assert registry.get(subject.backend.name) is registry.get(f"{subject.backend.name}:0")


def test_capabilities_name_known_things(subject):
    found = subject.backend.capabilities
    assert isinstance(found, Capabilities)
    for dtype, functions in found.functions.items():
        assert BY_NAME[dtype.name] is dtype
        assert functions <= frozenset(FUNCTIONS), f"{dtype.name}: {sorted(functions - frozenset(FUNCTIONS))}"
    primitives = {op.primitive for op in OPS if op.primitive} | {"elementwise", "reduce", "update"}
    assert set(found.unsupported) <= primitives
    assert found.scratch_bytes > 0
    for dtype in (bool_, BY_NAME["int32"], BY_NAME["int64"], BY_NAME["float32"]):
        assert dtype in found.functions, f"every backend computes in {dtype.name}"


def test_what_is_declared_unsupported_is_refused_by_every_primitive(subject):
    """And what is not declared is not refused: the other tests run it."""
    for primitive, dtypes in subject.backend.capabilities.unsupported.items():
        for dtype in dtypes:
            subject.refused(
                f"{primitive} {dtype.name}", lambda p=primitive, d=dtype: subject.backend.require_primitive(p, d)
            )
    for dtype in ALL:
        if dtype not in subject.backend.capabilities.functions:
            with pytest.raises(UnsupportedError, match=dtype.name):
                subject.backend.require_primitive("copy", dtype)


def ask_for(subject, entry, dtype):
    """Call a row; of what else is declared, ask for the primitive it stands on."""
    if not isinstance(entry, Row):
        primitive = "reduce" if isinstance(entry, Reduction) else entry.primitive or "elementwise"
        subject.backend.require_primitive(primitive, dtype)
        return
    kinds = {"b": bool_, "i": dtype if dtype.is_integer else BY_NAME["int32"]}
    xs = [subject.put(np.ones(3), kinds.get(letter, dtype)) for letter in entry.signature.inputs]
    out = subject.output(bool_ if entry.signature.outputs == "b" else dtype, (3,)).view
    subject.run(entry, *xs, out=out, **scalars_of(entry, dtype))


def test_what_is_declared_unsupported_is_the_list_that_is_kept(subject):
    """Each line is asked for, refused and counted; an op that comes or goes changes the list in the same commit."""
    found = declared(subject.backend)
    for line in found:
        entry, dtype = find(line.split()[0]), BY_NAME[line.split()[1]]
        subject.refused(line, lambda entry=entry, dtype=dtype: ask_for(subject, entry, dtype))
    known = kept(subject.backend)
    if known is None:
        pytest.skip(f"no list is kept of {subject.backend.info.driver}; it declares {found or 'nothing'} unsupported")
    path, lines = known
    assert found == sorted(lines), f"{path} is not what {subject.backend.info.name} declares"


def test_allocate_gives_the_layout_asked_for(subject):
    for shape, strides in (((), None), ((3, 4), None), ((3, 4), (1, 3)), ((0, 3), None), ((2, 3, 4), (1, 8, 2))):
        layout = Layout.of(BY_NAME["float32"], shape, strides)
        view = subject.backend.allocate(layout)
        assert view.layout is layout
        assert view.offset == 0
        assert view.buffer.backend is subject.backend
        subject.run("fill", alpha=2.0, out=view)
        assert view.to_host().tolist() == np.full(shape, 2.0).tolist()


def test_upload_and_download_keep_every_bit(subject):
    """All bytes of every dtype, NaN payloads of floats included where they are only moved."""
    for dtype in ALL:
        if dtype not in subject.backend.capabilities.functions or dtype not in (
            *subject.dtypes("b"),
            *subject.dtypes("n"),
        ):
            continue
        raw = subject.rng.integers(0, 2 if dtype.kind == "b" else 256, 24 * dtype.itemsize, np.uint8).view(
            dtype.storage
        )
        view = subject.backend.allocate(Layout.of(dtype, (4, 6)))
        subject.backend.upload(view, raw.reshape(4, 6))
        assert _bits(view.to_host(), dtype).tolist() == _bits(raw, dtype).reshape(4, 6, -1).tolist(), dtype.name


def _bits(array: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype.name == "bfloat16" and array.dtype == np.float32:
        array = (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, -1)


def test_counters_are_the_contract_s_types(subject):
    assert isinstance(subject.backend.memory(), Memory)
    assert isinstance(subject.backend.transfers(), Transfers)
    assert subject.backend.transfers() is not subject.backend.transfers()
    assert subject.backend.synchronize() is None
