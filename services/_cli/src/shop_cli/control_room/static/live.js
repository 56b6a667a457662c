"use strict";
// Replaces each section by the server's rendering when it has changed. Without this script, reload the page.
const sections = new Map([...document.querySelectorAll("[data-live]")].map((each) => [each.dataset.live, each]));
const connection = document.getElementById("connection");
const source = new EventSource("/events?" + document.currentScript.dataset.query);

source.onopen = () => { connection.textContent = "live"; };
source.onerror = () => { connection.textContent = "not connected"; };
source.onmessage = (event) => {
  for (const [name, html] of Object.entries(JSON.parse(event.data))) {
    const section = sections.get(name);
    // What is being typed must not be replaced; the next change shows the rest.
    if (section && !section.querySelector("input:focus")) replace(section, html);
  }
};

function replace(section, html) {
  const label = document.activeElement?.getAttribute("aria-label");
  section.innerHTML = html;
  if (label) section.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus();
}

// A form's answer is the next event, so the page need not be loaded again.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  event.preventDefault();
  const response = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form, event.submitter)) });
  if (!response.ok) connection.textContent = await response.text();
});
