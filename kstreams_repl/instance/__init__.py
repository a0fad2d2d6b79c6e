"""An instance: one consumer, one producer and some tasks, run in a loop until a deadline or a signal. Free of Spark.

`plan` says what to run, `loop` runs it, `take_over` starts tasks by the numbered protocol, `restore` and `global_tables`
bring state up to date, `collector` sends, `control` carries signals in and reports out. An epoch of the Spark host, a bounded
batch job and the tests call the same `run_instance`.
"""
