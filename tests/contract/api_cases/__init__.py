"""The cases of test_api_server.py by topic. A case is a function that takes an `api`; its name states what must hold."""

from typing import Final

import pytest

TOPICS: Final = ("access", "binding", "creating", "deleting", "patching", "reading", "updating", "validating", "watching")

pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("client", *TOPICS)))
