"""Detached applications: the driver is a process of its own, which goes on when the kernel goes.

Actors: the *driver process* (`driver`), which holds Spark and the `Deployment`; clients (`client.DetachedDeployment`), which stand where
a `Deployment` stands in an `Application`, in any kernel of this user on this machine; between them the folder ``driver`` of the
application's control directory (`mailbox`), readable by its user only.
"""
