"""The help pages of LibreOffice in the packages of Debian and its relatives, aligned by page and paragraph id."""
