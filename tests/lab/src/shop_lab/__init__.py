"""The laboratory: everything that proves orders. No image contains it, and the product imports none of it."""
