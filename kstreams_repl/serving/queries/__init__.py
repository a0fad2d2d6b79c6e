"""What can be asked of a store, and how questions and answers travel.

In: queries of users. Out: `Read`, one description of each for local, HTTP and v2 queries; positions, rows, JSON. Read first: `read`.
"""
