"""Fail when a test was skipped for a reason that is not allowed here; count those that are."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

ALLOWED = (
    "no systemd here",  # containers and small machines boot without it
)


def main(report: str) -> int:
    """Read a JUnit report and give the exit status."""
    tree = ElementTree.parse(report)  # noqa: S314 - written by pytest a moment ago
    skipped = [
        (f"{case.get('classname')}::{case.get('name')}", node.get("message") or "")
        for case in tree.iter("testcase")
        for node in case.iter("skipped")
    ]
    wrong = [(name, why) for name, why in skipped if not why.startswith(ALLOWED)]
    print(f"{len(skipped)} tests skipped, {len(wrong)} of them without leave")
    for name, why in wrong:
        print(f"  {name}: {why}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
