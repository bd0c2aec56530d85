// Receives live races from the server. Ignores messages of earlier races and of one that the page has abandoned.
/** @import { AgainMessage, EndMessage, EndPart, HeadMessage, NoteMessage, StepMessage, WatchMessage } from "./wire.d.ts" */
import { ROUTES } from "./constants.js";

const LOST = "The connection was lost, and the race with it; press Race to begin another.";

export class RaceReceiver {
  // `screen` shows the races. Its methods: refuseAddress(words), awaitRace(race, key), showPhase(phase, words),
  // startLiveRace(part), addLiveSteps(parts), endLiveRace(part), updateFigures(part) and setRunning(running), where
  // `running` tells whether the server is running or repeating the race.
  constructor(screen) {
    this.screen = screen;
    this.server = undefined;
    this.reset();
  }

  reset() {
    // The latest race, 0 before the first; and the latest that the page has given up, -1 if none.
    this.race = 0;
    this.abandonedRace = -1;
    // Whether the race has ended. Only its figures over several runs may still arrive.
    this.complete = false;
  }

  // Gives up the current race: closes its stream, and ignores what still arrives of it.
  abandon() {
    this.source?.close();
    this.screen.setRunning(false);
    this.abandonedRace = this.race;
  }

  // Opens the stream of a race. When the page closes a stream, the server ends that race.
  listen(key) {
    this.source?.close();
    this.complete = false;
    const source = (this.source = new EventSource(`${ROUTES.race}/${key}`));
    source.addEventListener("message", ({ data }) => this.receive(JSON.parse(data)));
    this.screen.setRunning(true);
    const close = () => {
      source.close();
      if (source === this.source) this.screen.setRunning(false);
    };
    source.addEventListener("end", close);
    source.addEventListener("error", () => {
      close();
      if (source === this.source && !this.complete) this.screen.showPhase("failed", LOST);
    });
  }

  /** @param {EndPart} part */
  end(part) {
    this.complete = true;
    this.screen.endLiveRace(part);
  }

  /** @param {WatchMessage | NoteMessage | HeadMessage | StepMessage | EndMessage | AgainMessage} message */
  receive(message) {
    const { race, kind } = message;
    // Race numbers grow while one server runs. After a restart they may be smaller, if the clock was set back.
    if (kind === "watch" && message.server !== this.server) {
      this.server = message.server;
      this.reset();
    }
    // A note without a race is about the page's address: its settings cannot be read.
    if (!race && kind === "note") return this.screen.refuseAddress(message.message);
    if (race < this.race || race <= this.abandonedRace) return;
    if (race > this.race) {
      this.race = race;
      this.screen.awaitRace(race, kind === "watch" ? message.key : undefined);
    }
    if (kind === "watch") this.listen(message.key);
    else if (kind === "note") this.screen.showPhase(message.phase, message.message);
    else if (kind === "head") this.screen.startLiveRace(message.parts[0]);
    else if (kind === "step") this.screen.addLiveSteps(message.parts);
    else if (kind === "end") this.end(message.parts[0]);
    else this.screen.updateFigures(message.parts.at(-1));
  }
}
