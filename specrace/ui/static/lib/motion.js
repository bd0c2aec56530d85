// Schedules small changes of the page, so that they are made together with the next picture of a race.

// Longer than the time between two pictures of a replay, shorter than that of a live race (player.js); not tuned.
const GRACE_MS = 60;
export const REDUCED_MOTION = matchMedia("(prefers-reduced-motion: reduce)");

// A change of the row that shows a draft waits for the race's next picture, if that comes within GRACE_MS after the
// change is due. Drawn separately, it would cost the browser far more, and slow down a race on the same machine.
const waiting = new Set();

// Calls `change` once `ms` have passed. Returns the task, for `cancel`.
export function schedule(change, ms) {
  const run = () => {
    if (cancel(task)) change();
  };
  const task = { due: performance.now() + ms, run };
  task.timer = setTimeout(task.run, ms + GRACE_MS);
  waiting.add(task);
  return task;
}

// Cancels a task; returns whether it was still waiting.
export function cancel(task) {
  clearTimeout(task?.timer);
  return waiting.delete(task);
}

// Runs the tasks that are due. Called when a picture of the race is drawn.
export function runDue() {
  for (const task of [...waiting]) if (task.due <= performance.now()) task.run();
}
