// Schedules the small changes that ride on the race's pictures.
const GRACE_MS = 60;
export const CALM = matchMedia("(prefers-reduced-motion: reduce)");

// Tasks for a draft's row wait for the race's next picture, if one comes within GRACE_MS of their time: each picture costs
// the browser far more than the change itself, at the expense of a race on the same machine.
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
