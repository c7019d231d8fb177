"""Reads Wikipedia: monolingual text from dumps or from the output of wikiextractor."""
