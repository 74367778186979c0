"""What placement decides: which devices an attempt is given, and how a grant lives and ends. Pure."""
