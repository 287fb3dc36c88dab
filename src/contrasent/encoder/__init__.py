"""The encoder in torch: backbone, packed layers, poolers, heads, dropout and export."""
