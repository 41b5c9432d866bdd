"""Modules of tensorflow.examples that scripts import."""
