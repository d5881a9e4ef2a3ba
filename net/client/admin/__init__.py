"""The client of administrators: requests, their answers, and the watch of a group."""
