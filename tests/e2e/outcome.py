# Owns how a script among these tests says that it is skipped or has waited in vain.
import sys
import time


def skip(why):
    """77 is the exit code that the build files have ctest count as skipped."""
    print("skipped:", why)
    sys.exit(77)


def until(what, text, patience=120):
    """The first true answer of `what`; without one within `patience` seconds the test has failed,
    and says that there was no `text`. The bound only ends a test that would otherwise hang: it is
    far above what any machine needs."""
    end = time.monotonic() + patience
    while True:
        result = what()
        if result:
            return result
        if time.monotonic() > end:
            sys.exit(f"no {text}")
        time.sleep(0.02)
