"""A typed asyncio producer, consumer and admin over net.transport."""
