"""The op table beyond rows: primitives and composites, each with its shape rule, its body and its gradient."""
