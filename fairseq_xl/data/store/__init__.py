"""Files of a data folder: binarized text, manifests, shards, cached tables."""
