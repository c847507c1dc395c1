"""The version of vtl-core, in one place."""

__version__ = "0.1.0"
