"""The chaos evaluation of rebalancing: real brokers, unmodified consumers, faults of a seed.

    python -m interop.rebalance_chaos --seed 1 --seconds 70 [--sides rocketmq turbopump]
        [--strategies client-AVG broker-AVG broker-STICKY]

Each side and strategy is one run: a name server, two brokers, nodes that are processes with members
of one group each, and a producer. Faults hit nodes: kill, suspend, and the loss of most of what a
node is sent. Its parts: `faults.py` says which, `nodes.py` plays them, `lossy.py` is the network
that loses, `history.py` and `checkers.py` are OpenMessaging-Chaos's, `ownership.py` finds
who had a queue when, `windows.py` measures it, `report.py` writes tables.
"""
