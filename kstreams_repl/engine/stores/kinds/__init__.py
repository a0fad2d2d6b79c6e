"""The stores as a processor uses them: key-value, window, session, versioned, buffers."""
