"""Errors of building and running a cluster on this machine.

ClusterError
├── ToolchainError    no usable Go, and none could be installed
├── BuildError        go build failed
├── ProcessError      a program of the control plane died, or was not ready in time
└── KubectlError      kubectl failed
"""


class ClusterError(Exception):
    """The base of all; its text is written for the person at the keyboard."""


class ToolchainError(ClusterError):
    """There is no Go that can build the pinned versions."""


class BuildError(ClusterError):
    """A program could not be built."""


class ProcessError(ClusterError):
    """A program died, or was not ready in time."""


class KubectlError(ClusterError):
    """A kubectl command failed."""

    def __init__(self, command: str, exit_code: int, stderr: str) -> None:
        super().__init__(f"{command}: exit code {exit_code}: {stderr.strip() or 'no message'}")
        self.exit_code = exit_code
        self.stderr = stderr
