"""A public trace of a real fleet, through a whole stack: openb, the GPU cluster that Alibaba published in 2023."""
