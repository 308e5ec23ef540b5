"""Between nodes: byte messages over MPI point-to-point, and the collective algorithms made of them.

Every algorithm is a generator that starts messages and yields what it waits for;
`progress.Progress` drives any number of them together with the node's own work. So no wait is ever
inside MPI, each has a deadline, and one rank can run several rails at once.
"""
