"""Mutation testing: small faults in the product, one at a time, which tests must notice."""
