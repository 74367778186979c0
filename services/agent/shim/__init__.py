"""The first process of every run: takes the device locks, asks for leave, runs the command, ends its whole tree.

The agent starts it as ``python -I -S -B <this folder>/__main__.py <run folder>`` in a session of its own. It needs
nothing but Python, so that it starts fast, and it outlives the agent: time limit, grace and record are its own work.

The run folder (JSON files are written beside and renamed):

=====================  ================================================================================================
``order.json``         read: what to run, made by the agent
``stop.json``          read on SIGTERM: ``{"grace_seconds": 30}``; ``cancelled_by`` when a person on the node asks
``run.lock``           locked while a shim lives, so that two launches of one run make one shim
``shim.pid``           written first: pid, start time, boot and instance (the start id)
``started.json``       written after the leave and before the first process: from here on a user's process may exist
``exit.json``          written last, when no descendant is left: ``schemas.workload.ExitRecord``
``output-<rank>.<n>``  the newest output of a replica; n is the offset of the file's first byte
=====================  ================================================================================================
"""
