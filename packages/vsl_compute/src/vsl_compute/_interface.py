"""The interface versions that this package speaks: plain data, nothing imported.

MAJOR grows when a name goes or changes its meaning, MINOR when one is added. A package above asks for `MAJOR.MINOR` and
is content with the same MAJOR and that MINOR or a later one. The distribution's version is another number with another
job: installers compare it with the pins.
"""

PROVIDES = {"vsl.compute": "1.1"}
REQUIRES: dict[str, str] = {}
