"""superneurons: traces, plans, device profiles and results of the `superneurons` program in Python.

    traces     one training step as tensors and ops        read_trace, write_trace, trace_hash
    plans      what to do with memory, in issue order      read_plan, write_plan, read_request
    profiles   what the simulator knows of a machine       read_profile, write_profile
    results    what simulate, compare and replay write     read_results, best
    fidelity   predicted beside measured, as a table       python -m superneurons.fidelity
    plot       figures with matplotlib                     python -m superneurons.plot
    capture    one PyTorch training step as a trace        needs PyTorch

Everywhere sizes are bytes and times nanoseconds, both whole numbers, unless a name says otherwise.
A file that breaks its format raises `files.BadInput`, whose text is `FILE:LINE: what is wrong`.
"""

__version__ = "0.1.0"
