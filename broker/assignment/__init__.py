"""Which consumer has which queues: routes, who decides, the way from one owner to the next."""
