"""Quorum and elections of masters. Filled by the controller work; empty until then."""
