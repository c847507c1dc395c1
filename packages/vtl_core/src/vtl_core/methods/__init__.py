"""The methods of Tensor by subject; each class stands on the one before, and Tensor on the last."""
