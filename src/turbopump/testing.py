"""The pytest fixture `turbopump_cluster`: a real broker on free ports."""
