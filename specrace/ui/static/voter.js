// The phone's side of the audience's tally: one button a lane, and who was right.
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
    this.words.textContent = describe(state);
    this.choices.replaceChildren(...state.lanes.map((title, place) => this.choice(title, place)));
  }

  choice(title, place) {
    const { open, mine, winner, round, counts } = this.state;
    const node = document.createElement("button");
    node.textContent = open ? title : `${title}: ${counts[place]}`;
    node.disabled = !open;
    node.setAttribute("aria-pressed", String(mine === place));
    node.dataset.won = String(winner === place);
    node.addEventListener("click", () => this.ask("/vote", { round, choice: place }));
    return node;
  }

  async follow() {
    await this.ask("/state");
    setTimeout(() => this.follow(), this.state?.wait_ms ?? AGAIN_MS);
  }
}

if (document.body?.dataset.voter) new Voter(document.body).follow();
