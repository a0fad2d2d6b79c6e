"""What the picture of an application shows at its nodes."""
