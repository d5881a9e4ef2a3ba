"""The way of a message into the store and of its answer: role, checks, fast lane."""
