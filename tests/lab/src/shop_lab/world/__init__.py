"""A shop under test and what surrounds it: customers, peers, proxies, relays, and the invariants of its records."""
