"""Parts become a document that tools for bills of materials read."""

import json

from accelshare.sbom.cyclonedx import document, package_url
from accelshare.sbom.parts import Part

SUBJECT = Part("pypi", "accelshare", "1.0", license="Apache-2.0", needs=("click", "not-here"))
CLICK = Part("pypi", "click", "8.2+local")
GLIBC = Part("deb", "libstdc++6", "1:12-3~deb", namespace="debian", qualifiers=(("arch", "amd64"),))


def test_a_package_url_escapes_what_would_be_read_as_its_own_marks() -> None:
    assert package_url(CLICK) == "pkg:pypi/click@8.2%2Blocal"
    assert package_url(GLIBC) == "pkg:deb/debian/libstdc%2B%2B6@1%3A12-3~deb?arch=amd64"


def test_the_document_names_the_subject_its_parts_and_who_needs_whom() -> None:
    told = json.loads(document(SUBJECT, [GLIBC, CLICK]))
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    assert told["metadata"]["component"]["purl"] == "pkg:pypi/accelshare@1.0"
    assert told["metadata"]["component"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    assert [part["name"] for part in told["components"]] == ["libstdc++6", "click"]
    assert told["dependencies"] == [{"ref": "pkg:pypi/accelshare@1.0", "dependsOn": ["pkg:pypi/click@8.2%2Blocal"]}]


def test_the_same_parts_in_any_order_are_the_same_bytes() -> None:
    assert document(SUBJECT, [GLIBC, CLICK]) == document(SUBJECT, [CLICK, GLIBC])
