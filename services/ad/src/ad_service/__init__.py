"""Ads that fit the current page."""
