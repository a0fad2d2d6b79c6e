"""What an instance reports of itself."""
