"""Ways to run the product."""
