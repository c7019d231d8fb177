"""Reads WMT14 English-German and English-French and WMT16 English-Romanian: archives and news test sets."""
