"""How long one request holds the loop: every code of broker, name server and controller."""
