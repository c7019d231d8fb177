"""Reads LibreOffice help pages from packages of Debian and its derivatives, aligned by page and paragraph id."""
