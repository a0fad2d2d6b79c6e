"""Commands of `./kstreams` that need a checkout."""
