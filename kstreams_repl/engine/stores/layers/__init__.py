"""The layers below a typed store: objects over rows, rows over physical keys."""
