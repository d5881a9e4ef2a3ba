"""Simulated groups in which an acting replica forwards due messages to other masters
(enableRemoteEscape).
"""
