"""A stand-in for cuDNN's frontend: it records what is asked and computes by the op's own body."""

from __future__ import annotations

from types import SimpleNamespace

from vsl_compute.dispatch import overrides, run
from vsl_compute.dtypes import float32
from vsl_compute.view import Buffer, Layout, View


class NotSupportedError(Exception):
    pass


class Tensor:
    count = 0

    def __init__(self, dim=(), stride=()):
        Tensor.count += 1
        self.uid, self.dim, self.stride = Tensor.count, tuple(dim), tuple(stride)

    def get_uid(self):
        return self.uid

    def set_output(self, wanted):
        return self

    def set_data_type(self, kind):
        return self

    def set_dim(self, dim):
        self.dim = tuple(dim)
        return self

    def set_stride(self, stride):
        self.stride = tuple(stride)
        return self


class Graph:
    """A graph of one convolution with four plans: the first cannot be built, the others compute alike."""

    def __init__(self, library, **options):
        self.cudnn, self.ran, self.built = library, [], []
        library.graphs.append(self)

    def tensor(self, name, dim, stride, data_type):
        return Tensor(dim, stride)

    def _convolution(self, op, first, second, options):
        if self.cudnn.refuses:
            raise NotSupportedError("no such convolution")
        self.op, self.first, self.second, self.options, self.out = op, first, second, options, Tensor()
        return self.out

    def conv_fprop(self, image, weight, name, **options):
        return self._convolution("conv2d", image, weight, options)

    def conv_dgrad(self, loss, filter, name, **options):
        return self._convolution("conv2d_input", loss, filter, options)

    def conv_wgrad(self, image, loss, name, **options):
        return self._convolution("conv2d_weight", loss, image, options)

    def validate(self):
        pass

    build_operation_graph = check_support = validate

    def create_execution_plans(self, modes):
        assert modes == ["A", "B", "FALLBACK"]

    def deselect_numeric_notes(self, notes):
        self.notes = set(notes)

    def get_execution_plan_count(self):
        return 4

    def get_plan_name_at_index(self, index):
        return f"eng{index}"

    def build_plan_at_index(self, index):
        self.built.append(index)
        if index == 0:
            raise NotSupportedError("this plan cannot be built")

    def get_workspace_size_plan_at_index(self, index):
        return 100 * index

    def execute(self, addresses, workspace, handle):
        self.execute_plan_at_index(addresses, workspace, self.built[-1], handle)

    def execute_plan_at_index(self, addresses, workspace, index, handle):
        assert workspace > 0
        self.addresses = list(addresses.values())
        self.ran.append(index)
        backend = self.cudnn.backend
        views = []
        for tensor in (self.first, self.second, self.out):
            layout = Layout.of(self.cudnn.dtype, tensor.dim, tensor.stride)
            views.append(View(Buffer(backend, addresses[tensor.uid], layout.nbytes), layout))
        options = {name: tuple(value) for name, value in self.options.items()}
        if self.op != "conv2d":
            options["shape"] = self.out.dim
        image, weight = {
            "conv2d": (self.first, self.second),
            "conv2d_input": (self.out, self.second),
            "conv2d_weight": (self.second, self.out),
        }[self.op]
        groups = image.dim[1] // weight.dim[1]
        with overrides(False):
            result = run(self.op, views[0], views[1], groups=groups, **options)
        backend.copy(views[2], result)


def stand_in(simulated_device):
    """The module, for one device."""
    notes = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "NONDETERMINISTIC", "WINOGRAD", "FFT", "REDUCED_PRECISION_REDUCTION")
    library = SimpleNamespace(
        graphs=[], refuses=False, backend=simulated_device, dtype=float32, cudnnGraphNotSupportedError=NotSupportedError,
        create_handle=lambda: 4, destroy_handle=lambda handle: None, set_stream=lambda handle, stream: None,
        data_type=SimpleNamespace(FLOAT="FLOAT", HALF="HALF", BFLOAT16="BFLOAT16"),
        heur_mode=SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK"), numerical_note=SimpleNamespace(**{n: n for n in notes}),
    )  # fmt: skip
    library.pygraph = lambda **options: Graph(library, **options)
    return library
