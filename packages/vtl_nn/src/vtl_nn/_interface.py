"""The interface versions that this package speaks and needs: plain data, nothing imported."""

PROVIDES = {"vtl.nn": "1.1"}
REQUIRES = {"vtl.core": "1.1", "vtl.data": "1.0"}  # the same major, this minor or later
