"use strict";
// Updates the live sections from the server once a second, and whenever the user submits a form. Without this script,
// users must reload the page.
const connection = document.getElementById("connection");
let isPressed = false;
let refusal = "";

// A click counts only if press and release reach the same element, so move nothing while the mouse button is down.
for (const type of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) {
  document.addEventListener(type, (event) => { isPressed = Boolean(event.buttons & 1); }, true);
}

const isSelected = (node) => !getSelection().isCollapsed && getSelection().containsNode(node, true);
const isEdited = (node) => node.localName === "input" && node.value !== node.defaultValue;
const isText = (node) => node.nodeType === Node.TEXT_NODE;
const morphing = {
  callbacks: {
    beforeNodeMorphed: (node) => !isEdited(node) && !(isText(node) && isSelected(node)),
    beforeNodeRemoved: (node) => !isSelected(node),
    beforeAttributeUpdated: (name) => name !== "open",
  },
};

async function update() {
  const response = await fetch(location, { signal: AbortSignal.timeout(10_000) });
  if (!response.ok) throw new Error(`status ${response.status}`);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const section of document.querySelectorAll("[data-live]")) {
    if (!isPressed && !section.matches(".steady:is(:hover, :focus-within)")) {
      Idiomorph.morph(section, page.getElementById(section.id), morphing);
    }
  }
  say(refusal || "live");
}

async function send(form, submitter) {
  const body = new URLSearchParams(new FormData(form, submitter));
  const response = await fetch(form.action, { method: "POST", body, redirect: "manual" });
  refusal = response.type === "opaqueredirect" ? "" : (await response.json()).message;
  if (!refusal) for (const field of form.elements) field.defaultValue = field.value;
  await update();
}

function say(text) {
  if (connection.textContent !== text) connection.textContent = text; // don't make screen readers repeat the same text
}

function report(error) {
  say(`not connected: ${error.message}`);
}

async function poll() {
  if (!document.hidden) await update().catch(report);
  setTimeout(poll, 1_000);
}
if (document.querySelector("[data-live]")) poll();

document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  event.preventDefault(); // reloading the page would lose the scroll position, the selection and the focus
  send(event.target, event.submitter).catch(report);
});
