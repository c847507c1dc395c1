"""What backends with device memory and compilers have in common; it knows no device library."""
