"""Where a process begins: Ctrl-C is one line from the first import to the last exit handler."""

import signal

from uringinfer.cli.interrupts import leave_at_once


def run() -> None:
    """Entry point of the command `uringinfer`."""
    # whoever started us in the background made it be ignored, and it stays so
    hears_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears_interrupts:
        signal.signal(signal.SIGINT, leave_at_once)
    try:
        from uringinfer.cli.main import main

        main()
    finally:
        if hears_interrupts:
            signal.signal(signal.SIGINT, leave_at_once)


if __name__ == "__main__":
    run()
