"""Short forms that only tests need: packed addresses, cuts that wait, verdicts by name."""
