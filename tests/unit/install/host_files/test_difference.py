"""A difference as people read it."""

from accelshare.install.host_files.changes import unified_diff


def test_no_difference_is_no_text() -> None:
    assert unified_diff("/etc/a", b"1\n", b"1\n") == ""
    assert unified_diff("/etc/a", None, None) == ""


def test_a_new_file_and_one_that_goes_are_told_from_an_empty_one() -> None:
    assert unified_diff("/etc/a", None, b"1\n") == "--- /dev/null\n+++ /etc/a\n@@ -0,0 +1 @@\n+1\n"
    assert unified_diff("/etc/a", b"1\n", None) == "--- /etc/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"
    assert unified_diff("/etc/a", b"", b"1\n").startswith("--- /etc/a\n")


def test_a_missing_end_of_line_and_bytes_that_are_no_text_are_shown() -> None:
    assert unified_diff("/etc/a", b"\xff", b"1\n").endswith("-\ufffd\n\\ No newline at end of file\n+1\n")
