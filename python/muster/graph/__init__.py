"""Graphs: their elements, what becomes a tensor, calls of ops, functions, gradients, import and export."""
