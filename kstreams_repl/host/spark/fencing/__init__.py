"""Exclusive control of an application: its generation in the journal, and changes of its state while no instance runs."""
