"""What the queue of OpenCL and CUDA is: shared by threads, and of no use to a forked child."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from functools import partial

import numpy as np
import pytest

from vsl_compute.dispatch import asarray, run
from vsl_compute.errors import DeviceLostError


def test_threads_of_the_host_share_a_device(text_device, request):
    """They change places between any two steps of Python's, so also between a kernel's arguments and its launch."""
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    wrong = []

    def work(k):
        x = asarray(text_device, np.full(1000, k, np.float32))
        for _ in range(50):
            if not (run("add", run("multiply", x, 2.0), float(k)).to_host() == 3 * k).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _in_child(view, connection):
    try:
        run("add", view, 1.0)
        connection.send("it ran")
    except DeviceLostError as error:
        connection.send(str(error))
    connection.close()
    os._exit(0)  # nothing of the parent's is to be torn down here


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_so(text_device):
    view = asarray(text_device, np.ones(3, np.float32))
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(view, theirs))
    child.start()
    assert ours.poll(60), "the child hangs"
    assert "before this process was forked" in ours.recv()
    child.join(60)
    assert run("add", view, 1.0).to_host().tolist() == [2, 2, 2]
