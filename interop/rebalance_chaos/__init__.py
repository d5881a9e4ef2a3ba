"""The chaos evaluation of rebalancing: real brokers, unmodified consumers, faults of a seed.

    python -m interop.rebalance_chaos --seed 1 --seconds 70 [--sides rocketmq turbopump]
        [--strategies client-AVG broker-AVG broker-STICKY]

Each side and strategy is one run: a name server, two brokers, nodes that are processes with members
of a group each, and a producer. Faults hit nodes: kill, suspend, and the loss of most packets to
a node. `faults.py` chooses the faults, `nodes.py` plays them, `lossy.py` is the lossy network,
`history.py` and `checkers.py` are OpenMessaging-Chaos's, `ownership.py` finds the owners of queues,
`windows.py` measures them, `report.py` writes tables.
"""
