"""What an application is at a moment: its state, the thread of its control calls, its listeners, the session's register of them."""
