"""Registration of the broker at its name servers."""
