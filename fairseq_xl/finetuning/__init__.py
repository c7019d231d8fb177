"""Task types of fine-tuning, one file each: what is read, predicted and measured."""
