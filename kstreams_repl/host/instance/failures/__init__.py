"""Records that the brokers reject, user code that ends its process, and which record and node it was processing then."""
