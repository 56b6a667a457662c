"""What every service needs that is not its business."""
