"""Holds the local org against a real Salesforce org: ``make live-check``.

The same probes ask both how they behave, and what differs is printed and written into a report. A tool for developers:
no part of the package that is installed. Probes speak gRPC and HTTP themselves, since it is the protocol that is
looked at and not this package's clients; only the login is theirs.
"""
