"""Which proxy a request goes through: the connection's own, else the environment's."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_for(url: str, proxies: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a request to ``url``; ``None``: straight there.

    :param proxies: proxy URL by scheme (``http``, ``https``); before ``HTTPS_PROXY`` and its like in the environment,
        from which ``NO_PROXY`` excepts hosts.
    """
    parts = urlsplit(url)
    if parts.scheme in proxies:
        return proxies[parts.scheme]
    found = getproxies()
    proxy = found.get(parts.scheme) or found.get("all")
    if not proxy or not parts.hostname or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
