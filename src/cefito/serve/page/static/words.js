// The words of the page in its language, from messages/LANGUAGE.json.
export const language = document.documentElement.lang;
const messages = await (await fetch(new URL("messages/" + language + ".json", import.meta.url))).json();

// a message whose parts in braces are texts; what the service declares has English words without one
export const t = (key, values = {}, words) => (messages[key] ?? words).replace(/\{(\w+)\}/g, (_, name) => values[name]);

// the message of one or of several
export const counted = (key, count, values = {}) => t(key + (count === 1 ? ".one" : ".many"), { count: whole(count), ...values });

// a message whose parts in braces are elements or lists of them, as children of an element
export const parts = (key, values) => messages[key].split(/\{(\w+)\}/).flatMap((text, place) => (place % 2 ? values[text] : text));

const decimal = (digits, grouped) => new Intl.NumberFormat(language, { minimumFractionDigits: digits, maximumFractionDigits: digits, useGrouping: grouped });
const [tenths, wholes] = [decimal(1, false), decimal(0, true)];
export const tenth = (value) => tenths.format(value);
export const whole = (value) => wholes.format(value);
export const seconds = (value) => t("seconds", { value: tenth(value) });
export const percent = (value) => t("percent", { value: tenth(100 * value) });

// ---- the switch of languages, which the service reads from a cookie

document.getElementById("language").addEventListener("change", (event) => {
  document.cookie = "cefito-language=" + event.target.value + "; path=" + new URL(".", location).pathname + "; max-age=31536000; samesite=strict";
  location.reload();
});

// ---- the voice

export const voice = Boolean(window.speechSynthesis);

export function say(text, interrupting = false) {
  if (interrupting) speechSynthesis.cancel();
  const utterance = new SpeechSynthesisUtterance(text);
  utterance.lang = t("voice");
  speechSynthesis.speak(utterance);
}

export const silence = () => speechSynthesis.cancel();
