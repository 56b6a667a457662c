"use strict";
// Shows the server's new rendering of each section that changes. Without this script, users must reload the page.
const sections = new Map([...document.querySelectorAll("[data-live]")].map((each) => [each.dataset.live, each]));
const connection = document.getElementById("connection");
const source = new EventSource("/events?" + document.currentScript.dataset.query);

source.onopen = () => { connection.textContent = "live"; };
source.onerror = () => { connection.textContent = "not connected"; };
source.onmessage = (event) => {
  for (const [name, html] of Object.entries(JSON.parse(event.data))) {
    const section = sections.get(name);
    // Don't replace a section while the user types in it. The section's next change will show everything.
    if (section && !section.querySelector("input:focus")) replace(section, html);
  }
};

function replace(section, html) {
  const label = document.activeElement?.getAttribute("aria-label");
  section.innerHTML = html;
  if (label) section.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus();
}

// Submit forms without loading the page again, because the next event shows what the form has changed.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  event.preventDefault();
  const response = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form, event.submitter)) });
  if (!response.ok) connection.textContent = await response.text();
});
