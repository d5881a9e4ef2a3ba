"""SQL92 filters: from the text of an expression to a program that csrc/filter.c runs."""
