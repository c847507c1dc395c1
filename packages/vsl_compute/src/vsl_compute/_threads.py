"""Set before NumPy is first loaded: how long OpenBLAS's idle threads spin.

They spin for milliseconds after each product by default and take a core from whatever runs next; with 2**4 cycles a
convolutional training step on two cores is up to twice as fast. A program that loads NumPy first keeps what it chose.
"""

import os
import sys

if "numpy" not in sys.modules:
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
