"""The encoder in torch: backbone, packed rows, poolers, heads, dropout and export."""
