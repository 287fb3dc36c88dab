"""Models without torch: names and folders, tokens, the forward pass in numpy, exports, remote."""
