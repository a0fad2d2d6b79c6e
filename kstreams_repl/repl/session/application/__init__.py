"""One application from deploy to stop: edit, attach, versions, savepoints."""
