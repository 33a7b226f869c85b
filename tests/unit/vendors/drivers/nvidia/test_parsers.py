"""nvidia-smi's CSV: any text is either refused or gives sure cards only."""

from hypothesis import given
from hypothesis import strategies as st

from accelshare.vendors.drivers.driver import QueryFailed
from accelshare.vendors.drivers.nvidia_smi import FIELDS, OLD_FIELDS, parse_csv
from tests.fakes.sure import assert_sure

WORDS = st.sampled_from(
    [
        "0",
        "1",
        "GPU-368a683d-1111-2222-3333-0123456789ab",
        "16127",
        "[N/A]",
        "Enabled",
        "00000000:3B:00.0",
        "Unable to determine the device handle",
        "T4",
        "²",
    ]
)
ROWS = st.lists(st.lists(WORDS | st.text(max_size=8), max_size=8).map(", ".join), max_size=6).map("\n".join)


@given(ROWS | st.text(), st.sampled_from([FIELDS, OLD_FIELDS]))
def test_only_sure_cards_come_out_of_any_text(text: str, fields: tuple[str, ...]) -> None:
    try:
        assert_sure(parse_csv(text, fields))
    except QueryFailed:
        pass


@given(st.integers(0, 200))
def test_a_cut_answer_never_changes_a_card(length: int) -> None:
    whole = (
        "0, GPU-368a683d-1111-2222-3333-0123456789ab, 16127, 00000000:3B:00.0, Disabled, T4\n"
        "1, GPU-c0ffee00-1111-2222-3333-0123456789ab, 24258, 00000000:AF:00.0, Disabled, A30\n"
    )
    sizes = {0: 16127, 1: 24258}
    try:
        assert all(card.memory_mib == sizes[card.index] for card in parse_csv(whole[:length], FIELDS).cards)
    except QueryFailed:
        pass
