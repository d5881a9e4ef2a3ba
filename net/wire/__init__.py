"""Remoting frames, codes, headers and bodies as data. No I/O."""
