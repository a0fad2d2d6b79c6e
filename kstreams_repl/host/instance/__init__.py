"""An instance: one consumer, one producer and some tasks, run in a loop until a deadline or a signal. Independent of Spark.

`application_plan` says what to run, `polling` runs it, `tasks.task_initialization` starts tasks by the numbered protocol, `state`
restores stores, `tasks.record_collector` sends, `control` carries signals in and reports out. An epoch of the Spark host, a
bounded batch job and the tests all call `run_instance`.
"""

from kstreams_repl.system import log_context as _log_context  # noqa: F401 - its loggers name application, instance and task
