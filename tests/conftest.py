"""What holds for all tests."""

from hypothesis import settings

# A sanitized kernel on a machine with other work may take any time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
