"""The magics and what completes them. Each magic is one call of the Python API.

In: lines and cells. Out: the answers of sessions and applications. Read first: `topo_magics`.
"""
