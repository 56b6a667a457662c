"""What every service needs that is not its business. Each module is one concern."""
