"""Ways to put Triplane to work: on one machine without containers (`embedded`), in containers, on Kubernetes."""
