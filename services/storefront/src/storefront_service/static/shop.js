// Pages work without this script, which submits the currency and quantity forms on change, and updates order pages live.
"use strict";

for (const form of document.querySelectorAll("form[data-submit-on-change]")) {
  form.addEventListener("change", () => form.requestSubmit());
}

// Card data must not reappear when the visitor comes back to the form.
for (const form of document.querySelectorAll("form[data-checkout]")) {
  addEventListener("pagehide", () => {
    for (const input of form.querySelectorAll("[name^=credit_card]")) input.value = "";
  });
}

document.getElementById("rejection")?.focus();

for (const order of document.querySelectorAll("[data-events]")) {
  const events = new EventSource(order.dataset.events);
  for (const name of ["progress", "journal", "trace"]) {
    events.addEventListener(name, (event) => {
      const part = document.getElementById(name);
      if (part.innerHTML !== event.data) part.innerHTML = event.data;
    });
  }
  events.addEventListener("end", () => events.close());
  addEventListener("pagehide", () => events.close());
}
