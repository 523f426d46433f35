"""Chat models behind one protocol."""
