"""What runs on the host: standard library and pynvml alone, in the syntax of Python 3.8.

Nothing here knows how it got there. Modules import each other relatively, since on the host the
package has another name (see `backends.agent.loader`).
"""
