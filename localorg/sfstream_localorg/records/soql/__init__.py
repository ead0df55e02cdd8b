"""Supported subset of SOQL.

``SELECT … FROM … [WHERE …] [ORDER BY …] [LIMIT n] [OFFSET n]``: columns of the entity and of its parents
(``Owner.Name``, one level), ``FIELDS(ALL)``, ``COUNT()`` or ``COUNT(field)``; comparisons with ``=  !=  <  <=  >  >=
LIKE  IN  NOT IN``, joined by ``AND``, ``OR``, ``NOT`` and parentheses; date literals. Other syntax is refused with
``MALFORMED_QUERY`` or ``INVALID_FIELD``. Pure.
"""

from sfstream_localorg.records.soql.fields import EntityLookup, Parents, columns_of, no_parents
from sfstream_localorg.records.soql.parser import parse, parse_conditions, parse_where
from sfstream_localorg.records.soql.query import Query

__all__ = ["EntityLookup", "Parents", "Query", "columns_of", "no_parents", "parse", "parse_conditions", "parse_where"]
