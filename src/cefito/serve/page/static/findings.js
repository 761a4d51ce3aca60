// What was wrong in the steps of a session: each finding is spoken once, and stays dismissed.
import { t } from "./words.js";

const STORE = "cefito-dismissed-"; // and the session's id
const heard = new Set(); // sessions and keys

function dismissed(session) {
  try {
    return JSON.parse(sessionStorage.getItem(STORE + session)) || [];
  } catch (problem) {
    return [];
  }
}

// the findings of a state that were not dismissed, each with a key that stays while steps move
export function dismissable(state) {
  const counts = {};
  const sorted = [...(state.followed ? state.followed.findings : [])].sort((a, b) => (a.start || 0) - (b.start || 0));
  const away = dismissed(state.id);
  return sorted.map((finding) => {
    const kind = finding.kind + ":" + (finding.action === null ? finding.name : finding.action);
    counts[kind] = (counts[kind] || 0) + 1;
    const key = kind + ":" + counts[kind];
    const dismiss = () => sessionStorage.setItem(STORE + state.id, JSON.stringify([...dismissed(state.id), key]));
    return { ...finding, key, dismiss };
  }).filter((finding) => !away.includes(finding.key));
}

// the steps that were not done
const MISSING = "missing"; // a kind of cefito.verification.mistakes
export const missingSteps = (state) => state.findings.filter(({ kind }) => kind === MISSING);

// those that were not told yet
export function newFindings(state) {
  const fresh = state.findings.filter((finding) => !heard.has(state.id + finding.key));
  for (const finding of fresh) heard.add(state.id + finding.key);
  return fresh;
}

export const findingWords = (finding) => ({ step: finding.name, finding: t("finding." + finding.kind, {}, finding.words) });
