"""Instances from epoch to epoch: kept, handed over, ended."""
