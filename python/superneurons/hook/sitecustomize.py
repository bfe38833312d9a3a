# Python runs this at its start where `superneurons trace -- python ...` has put this folder on
# PYTHONPATH: it waits for PyTorch to be imported. It must never harm, whatever Python it meets.
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]


def _chain():
    """The program's own sitecustomize, which this one hides."""
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _arm():
    import importlib.util

    package = os.path.dirname(_here)
    if sys.version_info < (3, 10):
        sys.stderr.write("superneurons: not captured: Python 3.10 is needed, this is an older one\n")
        return
    spec = importlib.util.spec_from_file_location(
        "superneurons", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["superneurons"] = module
    spec.loader.exec_module(module)
    from superneurons import bootstrap

    bootstrap.arm()


if os.environ.get("SUPERNEURONS_CAPTURE"):
    try:
        _arm()
    except Exception as error:
        sys.stderr.write("superneurons: not captured: %s\n" % (error,))
_chain()
