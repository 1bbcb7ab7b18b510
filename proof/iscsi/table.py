#!/usr/bin/env python3
"""What iscsi-test-cu -V said of several servers, as a table: NAME=FILE...

A test that printed [SKIPPED] is counted as skipped, also if only a part of it was. Exit status 1 if a test of
the first server failed that is not on standard input, one SUITE.TEST a line.
"""
import re
import sys


def outcomes(path):
    """The outcome of each test, by suite and name."""
    found, suite, test = {}, "", None
    for line in open(path, errors="replace"):
        if match := re.match(r"Suite: (\S+)", line):
            suite, test = match[1], None
        elif match := re.match(r"  Test: (\S+) \.\.\.", line):
            test = (suite, match[1])
            found[test] = "passed"
        if test and "[SKIPPED]" in line and found[test] == "passed":
            found[test] = "skipped"
        # What the suite says of one command is in brackets.
        if test and re.match(r"(  Test: \S+ \.\.\.)?FAILED", line):
            found[test] = "failed"
    return found


servers = {name: outcomes(path) for name, path in (word.split("=", 1) for word in sys.argv[1:])}
suites = list(dict.fromkeys(suite for found in servers.values() for suite, _ in found))
kinds = ["passed", "skipped", "failed"]
print("| suite |" + "".join(f" {name} |" for name in servers) + " failed |")
print("|---|" + "---|" * (len(servers) + 1))
for suite in suites + [None]:
    cells, failed = [], []
    for name, found in servers.items():
        of_suite = {test: how for test, how in found.items() if suite in (None, test[0])}
        cells.append("/".join(str(list(of_suite.values()).count(kind)) for kind in kinds))
        if suite:
            failed += [f"{name}: {test[1]}" for test, how in of_suite.items() if how == "failed"]
    print(f"| {suite or '**all**'} |" + "".join(f" {cell} |" for cell in cells) + f" {', '.join(failed)} |")
known = set(sys.stdin.read().split())
first = next(iter(servers.values()))
new = [f"{suite}.{test}" for (suite, test), how in first.items() if how == "failed"]
new = [test for test in new if test not in known]
if new or not first:
    sys.exit(f"failed: {' '.join(new) or 'nothing ran'}")
