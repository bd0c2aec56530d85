// What the page knows about a lane before a race: its method's title, summary and hue.
const NO_HUE = 7;
const methods = new Map();

export function learnMethods(list) {
  for (const method of list) methods.set(method.lane, method);
}

export function describeLane(lane) {
  return { ...lane, ...methods.get(lane.lane) };
}

// Lanes by name, in the registry's order.
export function inOrder(names) {
  return [...methods.keys()].filter((lane) => names.includes(lane)).map((lane) => ({ lane }));
}

export function hueOf(lane) {
  return methods.get(lane.lane)?.hue ?? NO_HUE;
}
