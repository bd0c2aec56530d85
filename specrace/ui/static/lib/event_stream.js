// Receives live races from the server. Messages of an earlier race, or of one that the page has left, are dropped.
/** @import { AgainMessage, EndMessage, EndPart, HeadMessage, NoteMessage, StepMessage, WatchMessage } from "./wire.d.ts" */
import { ROUTES } from "./constants.js";

const LOST = "The connection was lost, and the race with it; press Race to begin another.";

export class Feed {
  // `screen` shows the races: it has refuse(words), wait(race, key), note(phase, words), takeHead(part), takeSteps(parts),
  // takeEnd(part) and takeAgain(part).
  constructor(screen) {
    this.screen = screen;
    this.server = undefined;
    this.forget();
  }

  forget() {
    this.race = 0;
    this.abandonedRace = -1;
    // Whether the race has ended. Only its figures over several runs may still arrive.
    this.complete = false;
  }

  // Gives up the current race.
  leave() {
    this.source?.close();
    this.abandonedRace = this.race;
  }

  // Opens the stream of a race. When the page closes a stream, the server ends that race.
  listen(key) {
    this.source?.close();
    this.complete = false;
    const source = (this.source = new EventSource(`${ROUTES.race}/${key}`));
    source.addEventListener("message", ({ data }) => this.take(JSON.parse(data)));
    source.addEventListener("end", () => source.close());
    source.addEventListener("error", () => {
      source.close();
      if (source === this.source && !this.complete) this.screen.note("failed", LOST);
    });
  }

  /** @param {EndPart} part */
  end(part) {
    this.complete = true;
    this.screen.takeEnd(part);
  }

  /** @param {WatchMessage | NoteMessage | HeadMessage | StepMessage | EndMessage | AgainMessage} message */
  take(message) {
    const { race, kind } = message;
    // Race numbers grow while one server runs. After a restart they may be smaller, if the clock was set back.
    if (kind === "watch" && message.server !== this.server) {
      this.server = message.server;
      this.forget();
    }
    // A note that belongs to no race says that the settings in the page's address cannot be read.
    if (!race && kind === "note") return this.screen.refuse(message.message);
    if (race < this.race || race <= this.abandonedRace) return;
    if (race > this.race) {
      this.race = race;
      this.screen.wait(race, kind === "watch" ? message.key : undefined);
    }
    if (kind === "watch") this.listen(message.key);
    else if (kind === "note") this.screen.note(message.phase, message.message);
    else if (kind === "head") this.screen.takeHead(message.parts[0]);
    else if (kind === "step") this.screen.takeSteps(message.parts);
    else if (kind === "end") this.end(message.parts[0]);
    else this.screen.takeAgain(message.parts.at(-1));
  }
}
