"""The ledger of one feed at one destination: what was sent for each row, what is to be sent, and people's decisions.

A run takes the lease, stages rows (entries with pinned bodies), passes the gate, and settles the service's answers.
"""
