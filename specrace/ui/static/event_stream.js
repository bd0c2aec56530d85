// What the server sends of live races. Messages of a race that was left, or that came before, are dropped.
const LOST = "The connection was lost, and the race with it; press Race to begin another.";

export class Feed {
  // `screen` has: refuse(words), wait(race, key), note(phase, words), takeHead(part), takeSteps(parts), takeEnd(part),
  // takeAgain(part).
  constructor(screen) {
    this.screen = screen;
    this.server = undefined;
    this.forget();
  }

  forget() {
    this.race = 0;
    this.left = -1;
    // Whether the race that is listened to is whole; what still comes is its figures over several runs.
    this.whole = false;
  }

  // The race that runs, if one does, is given up.
  leave() {
    this.source?.close();
    this.left = this.race;
  }

  // The server ends a race when its page no longer listens.
  listen(key) {
    this.source?.close();
    this.whole = false;
    const mine = (this.source = new EventSource(`gradio_api/race/${key}`));
    mine.addEventListener("message", ({ data }) => this.take(JSON.parse(data)));
    mine.addEventListener("end", () => mine.close());
    mine.addEventListener("error", () => {
      mine.close();
      if (mine === this.source && !this.whole) this.screen.note("failed", LOST);
    });
  }

  end(part) {
    this.whole = true;
    this.screen.takeEnd(part);
  }

  take({ race, kind, key, server, parts, phase, message }) {
    // Numbers grow within a server only: the next one's may be smaller, after the clock was set back.
    if (kind === "watch" && server !== this.server) {
      this.server = server;
      this.forget();
    }
    // Of no race: the page's own address cannot be read.
    if (!race && kind === "note") return this.screen.refuse(message);
    if (race < this.race || race <= this.left) return;
    if (race > this.race) {
      this.race = race;
      this.screen.wait(race, key);
    }
    if (kind === "watch") this.listen(key);
    else if (kind === "note") this.screen.note(phase, message);
    else if (kind === "head") this.screen.takeHead(parts[0]);
    else if (kind === "step") this.screen.takeSteps(parts);
    else if (kind === "end") this.end(parts[0]);
    else if (kind === "again") this.screen.takeAgain(parts.at(-1));
  }
}
