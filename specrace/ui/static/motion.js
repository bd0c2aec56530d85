// What moves, and when.
const GRACE_MS = 60;
export const CALM = matchMedia("(prefers-reduced-motion: reduce)");

// What a draft's row shows next rides on the next picture of the race, if there is one: each picture costs the browser
// far more than what has changed in it, and a race on the same machine pays for that.
const waiting = new Set();

export function later(act, ms) {
  const task = { due: performance.now() + ms, run: () => never(task) && act() };
  task.timer = setTimeout(task.run, ms + GRACE_MS);
  waiting.add(task);
  return task;
}

export function never(task) {
  clearTimeout(task?.timer);
  return waiting.delete(task);
}

export function runDue() {
  for (const task of [...waiting]) if (task.due <= performance.now()) task.run();
}
