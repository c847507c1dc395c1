"""Backends, each alone: none imports another, and nothing above this floor imports one by name."""
