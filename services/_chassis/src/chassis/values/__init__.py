"""Values that services share: amounts, fields, pages, keys."""
