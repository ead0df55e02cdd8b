"""Custom channels: their records, their filters, and the delivery of events on them."""
