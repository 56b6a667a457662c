"""Ads that match the current page."""
