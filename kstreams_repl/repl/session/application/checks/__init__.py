"""What is checked before an application starts or changes: its state, its contracts, its topics and serdes."""
