"""What ends a demo early. The text is written for the person at the keyboard."""


class DemoError(Exception):
    """The demo cannot go on, or saw something that accelshare promises never happens."""
