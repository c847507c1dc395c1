"""no_grad and enable_grad: what is remembered, for how long, and in which thread."""

from __future__ import annotations

import threading

import pytest

import vtl_core as vtl


def test_no_grad_remembers_nothing_as_context_and_as_decorator():
    x = vtl.ones(1, requires_grad=True)

    @vtl.no_grad()
    def double(t):
        assert not vtl.is_grad_enabled()
        return t * 2

    with vtl.no_grad():
        inside = x * 2
        with vtl.enable_grad():
            again = x * 2

    assert [t.requires_grad for t in (inside, again, double(x), x * 2)] == [False, True, False, True]
    assert double.__name__ == "double"


def test_no_grad_ends_with_an_exception():
    with pytest.raises(ZeroDivisionError), vtl.no_grad():
        raise ZeroDivisionError

    assert vtl.is_grad_enabled()


def test_no_grad_is_a_matter_of_the_thread():
    seen = []
    with vtl.no_grad():
        thread = threading.Thread(target=lambda: seen.append(vtl.is_grad_enabled()))
        thread.start()
        thread.join()

    assert seen == [True]
