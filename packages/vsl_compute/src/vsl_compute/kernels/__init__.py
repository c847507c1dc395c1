"""Kernel texts in a C-like language that several backends speak; a Dialect fills in what they call things."""
