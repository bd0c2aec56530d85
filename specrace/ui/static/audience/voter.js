// The audience's page on a phone: one button for each lane, and whether the vote was right.
/** @import { PollError, PollState } from "../lib/wire.d.ts" */
import { ROUTES } from "../lib/constants.js";
import { setText } from "../lib/dom.js";

const { poll_state: STATE, poll_vote: VOTE } = ROUTES;
const PAGE = location.pathname.replace(/\/$/, "");
const RETRY_MS = 4000;

// The heading of the page. `mine` is the lane that this phone has voted for.
/** @param {Omit<PollState, "counts" | "wait_ms" | "question" | "hues">} state */
export function describeState({ open, mine, winner, lanes, round }) {
  if (!round) return "Wait for the race on the stage.";
  if (open) return mine === null ? "Who wins?" : `You say: ${lanes[mine]}. Another tap changes it.`;
  if (winner === null) return "The votes are closed. Watch the stage.";
  const won = `${lanes[winner]} won.`;
  return mine === null ? won : `${won} You were ${mine === winner ? "right" : "wrong"}.`;
}

export class Voter {
  constructor(host) {
    this.question = host.querySelector(".question");
    this.words = host.querySelector("h1");
    this.choices = host.querySelector("[role=group]");
    this.problem = host.querySelector("[role=alert]");
  }

  async request(path, body) {
    const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    try {
      const answer = await fetch(PAGE + path, body && options);
      /** @type {PollState & Partial<PollError>} */
      const state = await answer.json();
      this.problem.textContent = state.error ?? "";
      if (answer.ok) this.draw(state);
    } catch {
      this.problem.textContent = "The stage cannot be reached; this page tries again.";
    }
  }

  /** @param {PollState} state */
  draw(state) {
    this.state = state;
    setText(this.question, state.question);
    setText(this.words, describeState(state));
    const { children } = this.choices;
    // Keep the buttons, because one of them may have the focus.
    while (children.length > state.lanes.length) this.choices.lastChild.remove();
    while (children.length < state.lanes.length) this.choices.append(this.drawChoice(children.length));
    state.lanes.forEach((title, lane) => this.mark(children[lane], title, lane));
  }

  drawChoice(lane) {
    const node = document.createElement("button");
    node.addEventListener("click", () => this.request(VOTE, { round: this.state.round, choice: lane }));
    return node;
  }

  // Updates the button of a lane.
  mark(node, title, lane) {
    const { open, mine, winner, counts, hues } = this.state;
    node.dataset.hue = String(hues[lane] ?? "");
    setText(node, open ? title : `${title}: ${counts[lane]}`);
    node.disabled = !open;
    node.setAttribute("aria-pressed", String(mine === lane));
    node.dataset.won = String(winner === lane);
  }

  // Asks for the poll's state for as long as the page is open, as often as the server allows.
  async follow() {
    await this.request(STATE);
    setTimeout(() => this.follow(), this.state?.wait_ms ?? RETRY_MS);
  }
}

if (document.body?.dataset.voter) new Voter(document.body).follow();
