"""What a broker keeps of topics, groups, clients and their offsets."""
