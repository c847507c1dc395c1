"""The interface versions that this package speaks and needs: plain data, nothing imported."""

PROVIDES = {"vtl.data": "1.0"}
REQUIRES: dict[str, str] = {}  # vtl-data stands apart: NumPy only
