"""Where instances run: Spark's task slots and its pools of Python workers, reserved by the driver."""
