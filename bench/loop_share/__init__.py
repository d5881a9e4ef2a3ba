"""The serial part of the work: the CPU time that the loop keeps."""
