"""Records which alerts fire and which pages are sent, from a release's Prometheus and Alertmanager."""

import json
import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_POLL_SECONDS = 3.0
GROUP_WAIT_SECONDS = 30.0
"""A page is sent when an alert has been active and not inhibited for so long, as Alertmanager's `group_wait` has it."""


@dataclass
class Firing:
    """One alert from the moment it fired until it resolved. Times are Unix seconds, None for what has not happened."""

    labels: Mapping[str, str]
    began: float
    ended: float | None = None
    uninhibited_since: float | None = None
    paged_at: float | None = None

    @property
    def paged(self) -> bool:
        return self.paged_at is not None

    @property
    def name(self) -> str:
        """The alert with what it is about: `Name(slo or service)`."""
        subject = self.labels.get("slo") or self.labels.get("service_name") or ""
        return f"{self.labels['alertname']}({subject})" if subject else self.labels["alertname"]


@dataclass
class AlertRecorder:
    """Polls Alertmanager in a thread until it is closed.

    Args:
        alertmanager: its base URL.
    """

    alertmanager: str
    firings: list[Firing] = field(default_factory=list)
    _closed: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin to poll."""
        threading.Thread(target=self._poll, name="alerts", daemon=True).start()

    def close(self) -> None:
        """Stop polling."""
        self._closed.set()

    def active(self) -> list[Firing]:
        """Return what fires now."""
        return [firing for firing in self.firings if firing.ended is None]

    def since(self, began: float) -> list[Firing]:
        """Return what began to fire at or after a time."""
        return [firing for firing in self.firings if firing.began >= began]

    def _poll(self) -> None:
        while not self._closed.wait(_POLL_SECONDS):
            try:
                self.update(_get(f"{self.alertmanager}/api/v2/alerts?active=true&inhibited=true"), time.time())
            except OSError:
                continue  # Alertmanager or the forwarded port restarts

    def update(self, alerts: list[dict[str, Any]], now: float) -> None:
        """Record what Alertmanager lists at a time."""
        present = {json.dumps(alert["labels"], sort_keys=True): alert for alert in alerts}
        known = {json.dumps(firing.labels, sort_keys=True): firing for firing in self.active()}
        for key, firing in known.items():
            if key not in present:
                firing.ended = now
        for key, alert in present.items():
            firing = known.get(key) or Firing(alert["labels"], now)
            if key not in known:
                self.firings.append(firing)
            if alert["status"]["inhibitedBy"]:
                firing.uninhibited_since = None
            else:
                firing.uninhibited_since = firing.uninhibited_since or now
                lasted = now - firing.uninhibited_since
                if firing.labels.get("severity") == "page" and lasted >= GROUP_WAIT_SECONDS:
                    firing.paged_at = firing.paged_at or now


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - the address is the caller's
        return json.load(response)
