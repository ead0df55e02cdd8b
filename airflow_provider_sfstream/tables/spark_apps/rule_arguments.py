"""The rules for fields, as arguments of an application; the key of hashes is in the driver's environment alone."""

from __future__ import annotations

import argparse
import os
from typing import get_args

from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE, FieldRules, Treatment


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to a parser: ``--exclude-field``, ``--mask-field`` and ``--hash-field``, each for one name."""
    for how in get_args(Treatment):
        parser.add_argument(f"--{how}-field", action="append", default=[], metavar="NAME", help=f"a field to {how}")


def rules_of(given: argparse.Namespace) -> FieldRules:
    """Return the rules of parsed arguments, with the key.

    :raises ConfigurationError: if they cannot be used, or there is no key for hashes.
    """
    rules = FieldRules.of(given.exclude_field, given.mask_field, given.hash_field)
    return rules.with_key(os.environ.get(HASH_KEY_VARIABLE))
