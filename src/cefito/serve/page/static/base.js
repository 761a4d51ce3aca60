// Elements and requests, for all parts of the page.
import { t } from "./words.js";

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function fill(select, first, options) {
  const before = select.value;
  select.replaceChildren(...(first === null ? [] : [make("option", { value: "" }, first)]), ...options);
  if ([...select.options].some((option) => option.value === before)) select.value = before;
}

// A number with its meaning, which the page lists under "What the numbers mean".
export function number(kind, text) {
  const meaning = $("means-" + kind);
  return make("span", { class: "number", title: meaning.textContent, "aria-describedby": meaning.id }, text);
}

// A bar as long as a share, which stands beside it as text.
export function bar(share) {
  const drawn = make("span", { class: "bar", "aria-hidden": "true" }, make("span"));
  drawn.firstChild.style.width = 100 * share + "%";
  return drawn;
}

export const clamp = (value, least, most) => Math.max(least, Math.min(most, value));

export function say(...parts) {
  $("said").replaceChildren(...parts);
}

export function complain(text, place = "problem") {
  $(place).replaceChildren(...(text ? [make("p", { class: "problem" }, text)] : []));
}

export function onSubmit(id, work) {
  $(id).addEventListener("submit", (event) => {
    event.preventDefault();
    work();
  });
}

// ---- the interface

export async function call(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw Object.assign(new Error(t("no.answer")), { passes: true });
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const wait = response.headers.get("Retry-After");
  const text = problem.detail || problem.title || t("answered", { status: response.status });
  const passes = Boolean(wait) || problem.type === "urn:cefito:deadline";
  throw Object.assign(new Error(wait ? t("again.in", { problem: text, seconds: wait }) : text), { type: problem.type, wait: Number(wait), passes });
}

// Send an upload again as long as the service loads its encoder.
export async function upload(path, parts, signal) {
  const form = new FormData();
  for (const [name, part] of Object.entries(parts)) form.append(name, part);
  for (;;) {
    try {
      return await call(path, { method: "POST", body: form, signal: signal });
    } catch (problem) {
      if (problem.type !== "urn:cefito:not-ready") throw problem;
      say(t("waiting", { problem: problem.message }));
      await pause(1000 * problem.wait);
      if (signal) signal.throwIfAborted();
    }
  }
}

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Try again what fails because the service is away or busy; say so until it answers.
export async function patiently(work) {
  for (let failed = false; ; failed = true) {
    try {
      const made = await work();
      if (failed) complain("");
      return made;
    } catch (problem) {
      if (!problem.passes) throw problem;
      complain(problem.message);
      await pause(1000 * (problem.wait || 3));
    }
  }
}

export const get = async (path, options) => (await call(path, options)).json();
export const json = (body) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

// `work`, whose problems are shown at a place
export function guarded(work, place) {
  return async function (event) {
    try {
      return await work(event);
    } catch (problem) {
      if (problem.name !== "AbortError") {
        say("");
        complain(problem.message, place);
      }
    }
  };
}
