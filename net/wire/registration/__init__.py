"""Registrations of brokers at name servers, as data."""
