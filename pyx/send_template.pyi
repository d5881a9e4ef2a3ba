"""The template of a connection's sends."""

class SendTemplate:
    """The header of a send that a connection's later sends are compared with; used by
    FastConnection alone."""
