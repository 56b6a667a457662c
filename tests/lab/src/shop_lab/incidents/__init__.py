"""Incidents with proof: faults as data, their injection and removal, and the record of what happened."""
