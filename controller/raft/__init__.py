"""The quorum's member: DLedger's election and log without I/O, and its files."""
