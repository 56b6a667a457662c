"""Records which alerts fire and which pages are sent, from a release's Prometheus and Alertmanager."""

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2

from shop_lab.incidents.record import Firing

_POLL_SECONDS = 3.0
GROUP_WAIT_SECONDS = 30.0
"""A page is sent when an alert has been active and not inhibited for so long, as Alertmanager's `group_wait` has it."""


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
                found = httpx2.get(f"{self.alertmanager}/api/v2/alerts?active=true&inhibited=true").raise_for_status()
            except httpx2.HTTPError:
                continue  # Alertmanager or the forwarded port restarts
            self.update(found.json(), time.time())

    def update(self, alerts: list[dict[str, Any]], now: float) -> None:
        """Record what Alertmanager lists at a time."""
        present = {json.dumps(alert["labels"], sort_keys=True): alert for alert in alerts}
        known = {json.dumps(firing.labels, sort_keys=True): firing for firing in self.active()}
        for key, firing in known.items():
            if key not in present:
                firing.ended = now
        for key, alert in present.items():
            firing = known.get(key) or Firing(labels=alert["labels"], began=now)
            if key not in known:
                self.firings.append(firing)
            if alert["status"]["inhibitedBy"]:
                firing.uninhibited_since = None
            else:
                firing.uninhibited_since = firing.uninhibited_since or now
                lasted = now - firing.uninhibited_since
                if firing.labels.get("severity") == "page" and lasted >= GROUP_WAIT_SECONDS:
                    firing.paged_at = firing.paged_at or now
