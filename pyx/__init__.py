"""Thin Cython over csrc: regions, codecs and batch kernels. Imports nothing of the project."""
