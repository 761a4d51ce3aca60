// Compare planned steps with annotated ones, by the rules of `step_kinds` in `cefito.report.breakdowns`.

export const MARKS = { right: "r", substitution: "u", order: "o", repetition: "a", missing: "m" };

function counted(actions) {
  const left = new Map();
  for (const action of actions) left.set(action, (left.get(action) || 0) + 1);
  return left;
}

export function stepKinds(planned, truth) {
  const left = counted(truth);
  const use = (action) => left.set(action, left.get(action) - 1);
  const kinds = planned.map((action, step) => (action === truth[step] ? (use(action), "right") : null));
  planned.forEach((action, step) => {
    if (!kinds[step] && (left.get(action) || 0) > 0) {
      kinds[step] = "order";
      use(action);
    }
  });
  const used = new Set(planned.filter((_, step) => kinds[step]));
  return planned.map((action, step) => {
    const kind = kinds[step] || (used.has(action) ? "repetition" : "substitution");
    used.add(action);
    return kind;
  });
}

export function missingSteps(planned, truth) {
  const left = counted(planned);
  const use = (action) => left.set(action, left.get(action) - 1);
  const missing = truth.map((action, step) => (action === planned[step] ? (use(action), false) : true));
  return truth.map((action, step) => {
    if (!missing[step] || !((left.get(action) || 0) > 0)) return missing[step];
    use(action);
    return false;
  });
}
