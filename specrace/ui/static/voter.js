// The phone's side of the audience's tally: one button a lane, and who was right.
import { write } from "./dom.js";

const PAGE = location.pathname.replace(/\/$/, "");
const AGAIN_MS = 4000;

export function describe({ open, mine, winner, lanes, round }) {
  if (!round) return "Wait for the race on the stage.";
  if (open) return mine === null ? "Who wins?" : `You say: ${lanes[mine]}. Another tap changes it.`;
  if (winner === null) return "The votes are closed. Watch the stage.";
  const won = `${lanes[winner]} won.`;
  return mine === null ? won : `${won} You were ${mine === winner ? "right" : "wrong"}.`;
}

export class Voter {
  constructor(host) {
    this.words = host.querySelector("h1");
    this.choices = host.querySelector("div");
    this.problem = host.querySelector("p");
  }

  async ask(path, body) {
    const sent = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    try {
      const answer = await fetch(PAGE + path, body && sent);
      const given = await answer.json();
      this.problem.textContent = given.error ?? "";
      if (answer.ok) this.draw(given);
    } catch {
      this.problem.textContent = "The stage cannot be reached; this page tries again.";
    }
  }

  draw(state) {
    this.state = state;
    write(this.words, describe(state));
    const { children } = this.choices;
    // Buttons stay, for one of them may be in focus.
    while (children.length > state.lanes.length) this.choices.lastChild.remove();
    while (children.length < state.lanes.length) this.choices.append(this.choice(children.length));
    state.lanes.forEach((title, place) => this.mark(children[place], title, place));
  }

  choice(place) {
    const node = document.createElement("button");
    node.addEventListener("click", () => this.ask("/vote", { round: this.state.round, choice: place }));
    return node;
  }

  mark(node, title, place) {
    const { open, mine, winner, counts } = this.state;
    write(node, open ? title : `${title}: ${counts[place]}`);
    node.disabled = !open;
    node.setAttribute("aria-pressed", String(mine === place));
    node.dataset.won = String(winner === place);
  }

  async follow() {
    await this.ask("/state");
    setTimeout(() => this.follow(), this.state?.wait_ms ?? AGAIN_MS);
  }
}

if (document.body?.dataset.voter) new Voter(document.body).follow();
