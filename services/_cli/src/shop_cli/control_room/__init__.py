"""The control room of `shop up`: a page and an API on loopback that show the running shop and inject faults."""
