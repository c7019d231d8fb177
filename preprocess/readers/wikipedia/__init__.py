"""Monolingual text from Wikipedia: its dumps, or what wikiextractor made of them."""
