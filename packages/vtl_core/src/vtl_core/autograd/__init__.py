"""Automatic differentiation: gates remember what ran, backward walks it the other way."""
