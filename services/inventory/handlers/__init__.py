"""What inventory does in a turn, and between turns with the nodes that move."""
