// A live race's frames, in order. Those of a race that was left, or that came before, are dropped; those that come fast
// are drawn together: a picture costs the browser far more than what is new in it, and a race on the same machine pays.
const PICTURE_MS = 95;
const LOST = "The connection was lost, and the race with it; press Race to begin another.";

export class Frames {
  // `screen` has: begin(race), watch(key), count({ seq, count, lost }), note(phase, words), takeReel(reel), draw(frames), and `drawn`: it shows this race.
  constructor(screen) {
    this.screen = screen;
    this.race = 0;
    this.left = -1;
    this.due = 0;
    this.restart();
  }

  restart() {
    this.seq = -1;
    this.count = this.lost = 0;
    this.arrived = [];
  }

  // The race that runs, if one does, is given up: what still comes of it is not looked at.
  leave() {
    this.source?.close();
    this.arrived = [];
    this.left = this.race;
  }

  // A race that was asked for. The server ends it when this page no longer listens.
  listen(key) {
    this.source?.close();
    const mine = (this.source = new EventSource(`gradio_api/race/${key}`));
    mine.addEventListener("message", ({ data }) => this.take(JSON.parse(data)));
    mine.addEventListener("end", () => mine.close());
    mine.addEventListener("error", () => {
      mine.close();
      if (mine === this.source) this.screen.note("failed", LOST);
    });
  }

  take(frame) {
    if (frame.race < this.race || frame.race <= this.left) return;
    if (frame.race > this.race) this.begin(frame.race);
    if (frame.kind === "watch") this.watch(frame.key);
    else if (frame.kind === "note") this.screen.note(frame.phase, frame.message);
    else if (frame.kind === "reel") this.screen.takeReel(frame);
    else if (frame.seq > this.seq) this.add(frame);
  }

  begin(race) {
    this.race = race;
    this.restart();
    this.screen.begin(race);
  }

  watch(key) {
    this.screen.watch(key);
    this.listen(key);
  }

  add(frame) {
    this.lost += frame.seq - this.seq - 1;
    this.count += 1;
    this.seq = frame.seq;
    this.screen.count(this);
    this.arrived.push(frame);
    if (performance.now() >= this.due || frame.results || !this.screen.drawn) this.draw();
    else this.late ??= setTimeout(() => this.draw(), PICTURE_MS);
  }

  draw() {
    clearTimeout(this.late);
    this.late = undefined;
    this.due = performance.now() + PICTURE_MS;
    this.screen.draw(this.arrived.splice(0));
  }
}
