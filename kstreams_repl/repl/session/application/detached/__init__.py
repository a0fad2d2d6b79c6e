"""Detached applications: the driver is a process of its own, which continues when the kernel ends.

Actors: the *driver process* (`driver`), which holds Spark and the `Deployment`; clients (`client.DetachedDeployment`), which
replace the `Deployment` of an `Application`, in any kernel of this user on this machine; between them the directory ``driver`` of
the application's control directory (`mailbox`), readable by its user only.
"""
