"""Controllers: a Raft quorum that elects the master of each broker group."""
