"""Decides when a job may go on and when it ends: queues, quotas, attempts. Owns `workload.job`."""
