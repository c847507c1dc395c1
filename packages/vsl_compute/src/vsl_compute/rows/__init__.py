"""The op tables that every backend reads: elementwise rows, state reductions and fused updates."""
