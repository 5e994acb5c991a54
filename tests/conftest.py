"""What all tests share."""

import signal

# A suite started in the background inherits an ignored SIGINT, and with it every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
