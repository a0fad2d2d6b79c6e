"""A sub-topology compiled into callables and generated loops."""
