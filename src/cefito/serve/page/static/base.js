// Elements, words and requests, for all parts of the page.

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

export const seconds = (value) => value.toFixed(1) + " s";
export const percent = (value) => (100 * value).toFixed(1) + " %";
export const clamp = (value, least, most) => Math.max(least, Math.min(most, value));

export function say(text) {
  $("said").textContent = text;
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
    throw new Error("The service does not answer. See that it still runs, and try again.");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const wait = response.headers.get("Retry-After");
  const text = problem.detail || problem.title || "The service answered " + response.status + ".";
  throw new Error(wait ? text + " (try again in " + wait + " s)" : text);
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
