"""What a service tells about its own work: numbers for Prometheus, and spans for OpenTelemetry."""
