"""Which proxy a request goes through: the connection's own, else the environment's."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import remember_user_info


def proxy_for(url: str, proxies: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a request to ``url``; ``None``: straight there. No error shows its password.

    :param proxies: proxy URL by scheme (``http``, ``https``); before ``HTTPS_PROXY`` and its like in the environment,
        from which ``NO_PROXY`` excepts hosts.
    :raises ConfigurationError: if that is no URL of a proxy.
    """
    proxy = _proxy_for(url, proxies)
    return None if proxy is None else checked_proxy(proxy)


def checked_proxy(url: str) -> str:
    """Return the URL of a proxy, which no library will take for something else.

    :raises ConfigurationError: if it is none. Its text is not shown.
    """
    remember_user_info(url)
    try:
        parts = urlsplit(url)
        usable = (
            bool(parts.hostname) and (parts.port or 1) > 0 and "@" not in f"{parts.path}{parts.query}{parts.fragment}"
        )
    except ValueError:  # which quotes what it takes for the port
        usable = False
    if not usable or "\\" in url or not url.isprintable():
        raise ConfigurationError(
            "The proxy of the connection's proxies or of the environment (HTTPS_PROXY) cannot be used: its URL is like "
            "http://proxy.example.com:3128, and in a user name or password before the host, characters such as / # ? @ "
            "are written as %2F %23 %3F %40. Nothing was sent."
        )
    return url


def _proxy_for(url: str, proxies: Mapping[str, str]) -> str | None:
    parts = urlsplit(url)
    if parts.scheme in proxies:
        return proxies[parts.scheme]
    found = getproxies()
    proxy = found.get(parts.scheme) or found.get("all")
    if not proxy or not parts.hostname or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
