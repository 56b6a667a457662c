"""Currency conversion at reference rates."""
