"""A small synthetic parallel corpus in English, German, French and Spanish."""
