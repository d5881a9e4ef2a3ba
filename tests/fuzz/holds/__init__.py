"""Measurement of the time for which one request holds the loop: every code of broker, name server
and controller.
"""
