"""Tables of a broker: topics, groups, clients and their offsets."""
