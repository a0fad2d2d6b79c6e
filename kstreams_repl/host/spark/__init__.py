"""The Spark host: a deployed application is one Structured Streaming query whose micro-batches are epochs of instances.

`deployment` is the application as the driver sees it, `application_state` its states. `startup` gets or starts Spark, `planning` decides
what runs and pickles it, `fencing` takes control of the application, `slots` decides where its instances run, `epochs` runs them,
`failures` watches them. The only package that imports pyspark.
"""

from kstreams_repl.system import log_context as _log_context  # noqa: F401 - its loggers name application, instance and task
