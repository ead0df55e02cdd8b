"""Custom channels: their records, their filters, and what of an event is delivered on them."""
