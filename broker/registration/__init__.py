"""The broker at its name servers: what it registers, where, under which address."""
