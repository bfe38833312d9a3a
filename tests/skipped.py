"""Prints the reason of every test that ctest skipped; no reason is an error.

    ctest --output-junit ctest.xml; python3 tests/skipped.py ctest.xml
"""

import re
import sys
import xml.etree.ElementTree as ET

# GoogleTest: "tests/x_test.cpp:12: Skipped", then the reason.
REASON = re.compile(r": Skipped\n(.*?)\n*(?:\n\n|\[  SKIPPED|$)", re.DOTALL)


def main(file):
    without = 0
    for test in ET.parse(file).getroot().iter("testcase"):
        if test.find("skipped") is None:
            continue
        found = REASON.search(test.findtext("system-out") or "")
        reason = " ".join(found[1].split()) if found else ""
        print(f"skipped: {test.get('name')}: {reason or 'no reason given'}")
        without += not reason
    return 1 if without else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
