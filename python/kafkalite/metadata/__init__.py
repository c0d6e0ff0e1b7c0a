"""The metadata of the cluster: all that a broker knows beyond records, and how it changes.

    records.py ── reading.py ──► fold.py ──► image.py, deltas ──► publisher.py ──► the broker core
    controller/ (judges) ──► solo.py (writes) ──► store.py, snapshots.py ──┘

Handlers find the lock under which changes are judged in write_lock.py, and who leads and
coordinates in cluster.py.
"""
