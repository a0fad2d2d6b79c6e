"""Why a row or an output record is what it is: the input records that made it.

In: a row of a store or the position of an output record, and `replay.replays`, which processes commits again. Out: `result.Causes`. Read
first: `why` (what is asked), then `search` (how causes are followed), `writers` (which record's processing has written a record) and
`used_rows` (what the nodes on its way have used); `row_keys` says which records of a changelog are of one row.
"""
