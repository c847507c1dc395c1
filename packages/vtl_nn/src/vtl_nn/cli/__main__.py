"""python -m vtl_nn.cli."""

import sys

from vtl_nn.cli import main

sys.exit(main())
