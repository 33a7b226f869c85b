"""`python -m accelshare` is the command `accelshare`."""

from accelshare.cli import main

if __name__ == "__main__":
    main()
