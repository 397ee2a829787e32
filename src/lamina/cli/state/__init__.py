"""Commands about keyed state: inspect, diff. target says which state, rows prints it."""
