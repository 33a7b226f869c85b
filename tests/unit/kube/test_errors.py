"""The tree of errors, and which error a response becomes."""

import msgspec
import pytest

from accelshare.kube import errors


@pytest.mark.parametrize(
    ("status", "leaf"),
    [
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (410, errors.Expired),
        (422, errors.Invalid),
        (429, errors.TooManyRequests),
        (500, errors.ApiError),
    ],
)
def test_a_status_code_has_its_own_error(status: int, leaf: type[errors.ApiError]) -> None:
    error = errors.from_answer(status, b'{"kind":"Status","reason":"Because","message":"it is so"}')
    assert type(error) is leaf
    assert (error.status, error.reason, error.message) == (status, "Because", "it is so")


def test_the_text_names_the_request_the_status_and_the_message() -> None:
    error = errors.from_answer(404, b'{"reason":"NotFound","message":"no pod a"}', request="GET /api/v1/pods/a")
    assert str(error) == "GET /api/v1/pods/a: 404 NotFound: no pod a"


def test_a_body_that_is_no_status_is_quoted() -> None:
    """A proxy's page must be recognisable in the log."""
    error = errors.from_answer(502, b"<h1>Bad Gateway</h1>")
    assert (error.reason, error.message) == ("Bad Gateway", "<h1>Bad Gateway</h1>")


def test_an_error_event_carries_its_own_code() -> None:
    event = msgspec.Raw(b'{"kind":"Status","code":410,"reason":"Expired","message":"too old"}')
    assert isinstance(errors.from_answer(0, event), errors.Expired)


@pytest.mark.parametrize(
    ("header", "body", "wait_s"),
    [
        ("7", b"{}", 7.0),
        ("", b'{"details":{"retryAfterSeconds":3}}', 3.0),
        ("2", b'{"details":{"retryAfterSeconds":3}}', 2.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", b"{}", None),
        ("", b"{}", None),
    ],
)
def test_how_long_to_wait_is_read_from_header_or_body(header: str, body: bytes, wait_s: float | None) -> None:
    assert errors.from_answer(429, body, retry_after=header).retry_after_s == wait_s
