"""Which enforcement way is used: the first whose requirements are met, with the reasons against the others."""

import pytest

from accelshare.vendors.catalog import load
from accelshare.vendors.enforcement import Enforcement, ProbeResult, Region, choose, requirements
from accelshare.vendors.profile import EnforcementRules, Requirement, Way

DRIVER = Requirement(file="/sys/driver", at_least="615")
TOOLKIT = Requirement(command=("ctk", "--version"), at_least="1.20.1")
MPS = Requirement(file="/mps")

TOOLKIT_WAY = Way({"LIMIT": "{mib}"}, (DRIVER, TOOLKIT))
MPS_WAY = Way({"MPS": "{mib}"}, (MPS, DRIVER))
FREE_WAY = Way({"FREE": "{mib}"})
WAYS = {"toolkit": TOOLKIT_WAY, "mps": MPS_WAY, "free": FREE_WAY}

YES, NO = ProbeResult(met=True, message="there"), ProbeResult(met=False, message="not there")


def test_the_first_way_whose_requirements_are_met_is_used() -> None:
    rules = EnforcementRules(("toolkit", "mps", "nobody"), WAYS)
    assert choose(rules, {DRIVER: YES, TOOLKIT: YES, MPS: YES}) == Enforcement("toolkit", {"LIMIT": "{mib}"})


def test_a_way_with_an_unmet_requirement_is_skipped_with_the_reason() -> None:
    rules = EnforcementRules(("toolkit", "mps"), WAYS)
    old = ProbeResult(met=False, message="ctk --version says 1.17; 1.20.1 is needed")
    chosen = choose(rules, {DRIVER: YES, TOOLKIT: old, MPS: YES})
    assert chosen == Enforcement("mps", {"MPS": "{mib}"}, ("toolkit: ctk --version says 1.17; 1.20.1 is needed",))
    assert chosen.limits


def test_nobody_is_the_fallback_and_sets_no_limit() -> None:
    chosen = choose(EnforcementRules(("toolkit", "mps"), WAYS), {DRIVER: NO, TOOLKIT: NO, MPS: YES})
    assert (chosen.name, chosen.env, chosen.limits) == ("nobody", {}, False)
    assert chosen.rejected_ways == ("toolkit: not there; not there", "mps: not there")


def test_a_requirement_without_a_probe_is_not_met() -> None:
    chosen = choose(EnforcementRules(("toolkit",), WAYS), {})
    assert chosen.rejected_ways == ("toolkit: /sys/driver was not probed; ctk --version was not probed",)


def test_a_way_that_is_not_in_the_order_is_off() -> None:
    assert choose(EnforcementRules(("nobody",), WAYS), {}).name == "nobody"
    assert choose(EnforcementRules(("free",), WAYS), {}).name == "free"


def test_each_requirement_is_probed_once() -> None:
    assert requirements(EnforcementRules(("toolkit", "mps", "nobody"), WAYS)) == (DRIVER, TOOLKIT, MPS)


NVML_WAY, DMEM_WAY = Way(set_by="nvml", min_mib=1024), Way(set_by="dmem", requires=(DRIVER,))
PROVABLE = EnforcementRules(("dmem", "nvml", "free"), {"dmem": DMEM_WAY, "nvml": NVML_WAY, "free": FREE_WAY})


def test_a_limit_on_a_cgroup_is_used_only_if_it_was_proven() -> None:
    proofs = {"dmem": ProbeResult(met=False, message="no region"), "nvml": YES}
    chosen = choose(PROVABLE, {DRIVER: YES}, lambda way: proofs[way.set_by])
    assert chosen == Enforcement("nvml", {}, ("dmem: no region",), set_by="nvml", min_mib=1024)
    assert (chosen.limits, chosen.on_cgroup) == (True, True)
    chosen = choose(PROVABLE, {DRIVER: YES})
    assert (chosen.name, chosen.on_cgroup) == ("free", False)
    assert chosen.rejected_ways == ("dmem: no limit was set and read back", "nvml: no limit was set and read back")


def test_nothing_is_set_for_a_way_that_is_not_needed_or_not_possible() -> None:
    tried: list[str] = []

    def prove(way: Way) -> ProbeResult:
        tried.append(way.set_by)
        return ProbeResult(met=True, message="", regions=(Region("acme/card0", 2**34),))

    assert choose(PROVABLE, {DRIVER: YES}, prove).regions == (Region("acme/card0", 2**34),)
    assert choose(PROVABLE, {}, prove).name == "nvml"
    assert tried == ["dmem", "nvml"]


@pytest.mark.parametrize("name", ["enflame", "stream"])
def test_nobody_enforces_shares_of_a_vendor_without_a_way(name: str) -> None:
    rules = load()[name].enforcement
    assert requirements(rules) == ()
    assert not choose(rules, {}).limits


def test_mps_is_an_option_that_is_off() -> None:
    nvidia = load()["nvidia"].enforcement
    assert "mps" in nvidia.ways
    assert [name for name, _ in nvidia.in_order] == ["nvml", "toolkit", "nobody"]
