"""Functions of tf that add nodes to a graph, one module per family of ops."""
