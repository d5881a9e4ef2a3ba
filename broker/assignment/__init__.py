"""Assignment of queues to consumers: routes, the deciding broker, the handover between owners."""
