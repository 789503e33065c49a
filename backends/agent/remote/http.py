"""HTTP on this host's own loopback, asked from here: no proxy, no redirect, bounded answers."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import Any, Dict

from . import rpc

MAX_BODY = 1024 * 1024

Params = Dict[str, Any]


def register(agent: Any) -> None:
    """Add the method."""
    agent.methods.add("http.ask", ask, threaded=True)


def ask(params: Params) -> Dict[str, Any]:
    """One request.

    Args:
        params: `port`, `path`, and at will `address` (default 127.0.0.1), `method`, `body` (JSON),
            `headers`, `timeout_s`.

    Returns:
        `status`, `body` (text, cut at 1 MiB), `took_s`; or `error` (`refused`, `timeout`, `reset`,
        or other words) where there was no answer.
    """
    timeout_s = min(600.0, max(0.1, float(params.get("timeout_s", 2.0))))
    headers = {str(k): str(v) for k, v in (params.get("headers") or {}).items()}
    body = params.get("body")
    data = None
    if body is not None:
        data = json.dumps(body).encode("utf-8")
        headers.setdefault("Content-Type", "application/json")
    address = str(params.get("address") or "127.0.0.1")
    path = str(params["path"])
    if not path.startswith("/") or any(c in path for c in "\r\n \x00"):
        raise rpc.RpcError("not a path: %r" % path[:100], rpc.INVALID_PARAMS)
    began = time.monotonic()
    connection = http.client.HTTPConnection(address, int(params["port"]), timeout=timeout_s)
    answer: Dict[str, Any] = {}
    try:
        connection.request(str(params.get("method", "GET")), path, data, headers)
        response = connection.getresponse()
        answer["status"] = response.status
        answer["body"] = response.read(MAX_BODY).decode("utf-8", "replace")
    except ConnectionRefusedError:
        answer["error"] = "refused"
    except socket.timeout:
        answer["error"] = "timeout"
    except (ConnectionError, http.client.RemoteDisconnected):
        answer["error"] = "reset"
    except (OSError, http.client.HTTPException) as error:
        answer["error"] = rpc.describe(error)
    finally:
        connection.close()
    answer["took_s"] = round(time.monotonic() - began, 4)
    return answer
