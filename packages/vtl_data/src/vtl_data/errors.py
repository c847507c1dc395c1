"""Everything that vtl-data raises about data; wrong arguments raise Python's own ValueError, TypeError, IndexError.

ValueError
  DataError            a data set that is missing, truncated, tampered with or not of the stated layout: what, where, the remedy
"""

from __future__ import annotations


class DataError(ValueError):
    """A data set is missing, damaged or not what its layout says; the message is one line with the remedy."""
