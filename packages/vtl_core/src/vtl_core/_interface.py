"""The interface versions that this package speaks and needs: plain data, nothing imported."""

PROVIDES = {"vtl.core": "1.1"}
REQUIRES = {"vsl.compute": "1.1"}  # the same major, this minor or later
