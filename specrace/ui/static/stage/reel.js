// Reads a race into the steps that are played: {lane, index, at, frame, event, sent}, where `sent` is the
// frame as the server sent it. The server leaves out of a step's frame
// what follows from its event, and what is unchanged since the lane's previous frame.
import { CONSTANTS } from "../lib/constants.js";

const { accepted_shown: ACCEPTED_SHOWN, rejected_shown: REJECTED_SHOWN } = CONSTANTS;

// Reads steps one by one, as they arrive.
export class StepReader {
  constructor(lanes) {
    this.indices = new Map(lanes.map(({ lane }, index) => [lane, index]));
    this.last = lanes.map(() => ({ meters: { accepted: 0, drafted: 0, tokens: 0, steps: 0 } }));
  }

  read({ event, frame }) {
    const lane = this.indices.get(event.lane);
    this.last[lane] = readFrame(lane, event, frame, this.last[lane]);
    return { lane, index: event.index, at: event.at_ms, frame: this.last[lane], event, sent: frame };
  }
}

// Reads a whole reel as the server sent it.
export function readReel(sent) {
  const reader = new StepReader(sent.head.lanes);
  return { ...sent, steps: sent.steps.map((step) => reader.read(step)) };
}

function readFrame(lane, event, { spans, meters, ...changes }, before) {
  const { tree, verdict, emitted } = event;
  const accepted = Math.min(verdict.path.length - 1, emitted.length);
  const drafted = tree.tokens.length - 1;
  const counts = {
    accepted: before.meters.accepted + accepted,
    drafted: before.meters.drafted + drafted,
    tokens: before.meters.tokens + emitted.length,
    steps: before.meters.steps + 1,
  };
  return {
    ...before,
    ...changes,
    lane,
    runs: readRuns(event, accepted, spans),
    meters: { ...meters, ...counts },
    draft: { step: event.index, drafted, accepted, ...readDraft(event, accepted) },
    end: event.end,
  };
}

// A step's text as runs [kind, text, tokens]; an accepted run also has the spans it was drafted from.
function readRuns({ texts, emitted }, accepted, spans) {
  const numOwn = emitted.length - accepted;
  const runs = [];
  if (accepted) runs.push(["accepted", texts.slice(0, accepted).join(""), accepted, ...(spans ? [spans] : [])]);
  if (numOwn) runs.push(["own", texts.slice(accepted).join(""), numOwn]);
  return runs;
}

// The draft as it is shown: `yes`, the text of the last accepted tokens, and `no`, the pieces of the first rejected branch.
function readDraft({ tree, verdict, pieces }, accepted) {
  const pieceOf = (node) => pieces[node] ?? "";
  const yes = verdict.path
    .slice(1, accepted + 1)
    .slice(-ACCEPTED_SHOWN)
    .map(pieceOf)
    .join("");
  const no = [];
  let node = verdict.path.at(-1);
  // An answer that ends inside its path has no rejected branch.
  if (accepted < verdict.path.length - 1) return { yes, no };
  for (let child = node + 1; child < tree.parents.length && no.length < REJECTED_SHOWN; child++) {
    if (tree.parents[child] !== node) continue;
    no.push(pieceOf(child));
    node = child;
  }
  return { yes, no };
}
