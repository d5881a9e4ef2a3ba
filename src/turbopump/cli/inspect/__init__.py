"""`turbopump inspect`: the files of a store, read without a broker."""
