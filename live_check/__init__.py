"""Comparison of the local org with a real Salesforce org: ``make live-check``.

The check runs the same probes on both orgs, prints the differences and writes a report. It is a tool for developers and
not part of the installed package. Probes send gRPC and HTTP requests directly, because they examine the protocol and
not this package's clients. Only the login uses the package.
"""
