"""Pop consumption: hand-outs, check points, acknowledgements and revival."""
